// What llama-server's own parser makes of its arguments, without a device, a model or the server around it.
//
//     parser -m FILE --ctx-size 4096 ...    the fields that they set, one a line; 1 for what the parser refuses
//     parser --table                        every argument with the number of its values
//
// Built by parser.sh from the tree's own common/*.cpp. Two devices stand for a CPU and a CUDA card.
#include "arg.h"
#include "common.h"
#include "ggml-backend.h"

#include <cstdio>
#include <string>

extern "C" {
size_t llama_max_devices(void) { return 16; }
size_t llama_max_parallel_sequences(void) { return 256; }
size_t llama_max_tensor_buft_overrides(void) { return 4096; }
bool llama_supports_gpu_offload(void) { return true; }
bool llama_supports_rpc(void) { return true; }
size_t ggml_backend_dev_count(void) { return 2; }
ggml_backend_dev_t ggml_backend_dev_get(size_t index) { return (ggml_backend_dev_t) (index + 1); }
enum ggml_backend_dev_type ggml_backend_dev_type(ggml_backend_dev_t device) {
    return (size_t) device == 1 ? GGML_BACKEND_DEVICE_TYPE_CPU : GGML_BACKEND_DEVICE_TYPE_GPU;
}
ggml_backend_dev_t ggml_backend_dev_by_name(const char * name) {
    return (ggml_backend_dev_t) (std::string(name).rfind("CUDA", 0) == 0 ? 2L : std::string(name) == "CPU" ? 1L : 0L);
}
ggml_backend_buffer_type_t ggml_backend_dev_buffer_type(ggml_backend_dev_t device) { return (ggml_backend_buffer_type_t) device; }
const char * ggml_backend_buft_name(ggml_backend_buffer_type_t type) { return (size_t) type == 1 ? "CPU" : "CUDA0"; }
}

static void table() {
    common_params params;
    auto context = common_params_parser_init(params, LLAMA_EXAMPLE_SERVER, nullptr);
    for (auto & option : context.options) {
        int values = option.value_hint_2 ? 2 : option.handler_void || option.handler_bool ? 0 : 1;
        for (auto & name : option.args) printf("%s,%d\n", name, values);
        for (auto & name : option.args_neg) printf("%s,0\n", name);
    }
}

int main(int argc, char ** argv) {
    if (argc > 1 && std::string(argv[1]) == "--table") {
        table();
        return 0;
    }
    common_params p;
    if (!common_params_parse(argc, argv, p, LLAMA_EXAMPLE_SERVER)) return 1;
    size_t rules = 0;
    for (auto & rule : p.tensor_buft_overrides) rules += rule.pattern != nullptr;
    printf("model=%s\nhf_repo=%s\n", p.model.path.c_str(), p.model.hf_repo.c_str());
    printf("n_ctx=%d\nn_batch=%d\nn_ubatch=%d\nn_parallel=%d\nn_gpu_layers=%d\n", p.n_ctx, p.n_batch, p.n_ubatch,
           p.n_parallel, p.n_gpu_layers);
    printf("flash_attn=%d\ncache_type_k=%s\ncache_type_v=%s\n", (int) p.flash_attn_type, ggml_type_name(p.cache_type_k),
           ggml_type_name(p.cache_type_v));
    printf("kv_unified=%d\nswa_full=%d\nno_kv_offload=%d\nfit=%d\nmmproj_offload=%d\n", p.kv_unified, p.swa_full,
           p.no_kv_offload, (int) p.fit_params, p.mmproj_use_gpu);
    printf("split_mode=%d\nmain_gpu=%d\ntensor_split=%g,%g\noverride_tensor=%zu\ndevices=%zu\n", (int) p.split_mode,
           p.main_gpu, p.tensor_split[0], p.tensor_split[1], rules, p.devices.size());
    return 0;
}
