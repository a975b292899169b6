// What llama.cpp reserves for a file: model, cache and compute bytes of every buffer type, on devices that have no memory.
//
//   reservations [--graph] < lines of "FILE key=value ...", one JSON object a line to stdout
//
// The devices stand for CUDA's: alignment 128 (ggml-cuda.cu ggml_backend_cuda_buffer_type_get_alignment), every operation
// supported, products of 32 rows and more taken over from the host, asynchronous with events. Nothing is computed, and no
// memory but that of the host's compute buffer is allocated. The graph is reserved as a run with memory does it: what
// llama-fit-params asks for (no_alloc) forgets where the program told nodes to run (ggml_backend_sched_reserve_size begins
// with a reset). With what optimizers.py cuts out of the tree (-DOPTIMIZERS='"optimizers.inc"') they also do to a
// graph what a backend does: backend=cuda, backend=vulkan, backend=metal (which also adds to tensors what Metal does). Keys: backend, n_ctx, n_ubatch, n_batch, n_seqs, n_outputs, flash, unified, type_k, type_v, ngl, devices,
// cpu_moe, kv_offload, swa_full.

#include "ggml-backend-impl.h"
#include "ggml-impl.h"
#include "llama-context.h"
#include "llama-ext.h"
#include "llama.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <sstream>
#include <string>

#ifdef OPTIMIZERS
#include OPTIMIZERS
#endif

static std::string backend;

static const int MOST_DEVICES = 8;
static ggml_backend_device devices[MOST_DEVICES];
static ggml_backend_buffer_type types[MOST_DEVICES];
static const char * names[MOST_DEVICES] = {"GPU0", "GPU1", "GPU2", "GPU3", "GPU4", "GPU5", "GPU6", "GPU7"};

static int index_of(ggml_backend_dev_t dev) { return int(dev - devices); }

static const char * reg_name(ggml_backend_reg_t) { return "none"; }
static size_t reg_count(ggml_backend_reg_t) { return MOST_DEVICES; }
static ggml_backend_dev_t reg_device(ggml_backend_reg_t, size_t i) { return &devices[i]; }
static void * reg_address(ggml_backend_reg_t, const char *) { return nullptr; }
static ggml_backend_reg reg = {GGML_BACKEND_API_VERSION, {reg_name, reg_count, reg_device, reg_address}, nullptr};

static const char * type_name(ggml_backend_buffer_type_t t) { return names[t - types]; }
static size_t type_alignment(ggml_backend_buffer_type_t) { return backend == "metal" ? 32 : 128; }
static size_t type_size(ggml_backend_buffer_type_t, const ggml_tensor * t) {
#ifdef OPTIMIZERS
    if (backend == "metal") { return ggml_backend_metal_buffer_type_get_alloc_size(nullptr, t); }
#endif
    size_t size = ggml_nbytes(t);
    if (t->op == GGML_OP_FLASH_ATTN_EXT) {  // CUDA copies quantized keys and values to 16 bit behind the result
        const ggml_tensor * k = t->src[1], * v = t->src[2];
        const bool shared = v->view_src && v->view_src == k->view_src && v->view_offs == k->view_offs;
        for (const ggml_tensor * one : {k, shared ? nullptr : v}) {
            if (one && one->type != GGML_TYPE_F16) { size = GGML_PAD(size, 128) + 2 * ggml_nelements(one); }
        }
        return size;
    }
    if (ggml_is_quantized(t->type) && t->ne[0] % 512) {
        size += ggml_row_size(t->type, 512 - t->ne[0] % 512);
    }
    return size;
}
static void * buffer_base(ggml_backend_buffer_t) { return (void *) 0x1000; }
static ggml_backend_buffer_t type_alloc(ggml_backend_buffer_type_t t, size_t size) {
    ggml_backend_buffer_i iface = {};
    iface.get_base = buffer_base;
    iface.clear = [](ggml_backend_buffer_t, uint8_t) {};
    return ggml_backend_buffer_init(t, iface, nullptr, size);
}

static const char * dev_name(ggml_backend_dev_t dev) { return names[index_of(dev)]; }
static void dev_memory(ggml_backend_dev_t, size_t * free, size_t * total) { *free = *total = size_t(1) << 43; }
static enum ggml_backend_dev_type dev_type(ggml_backend_dev_t) { return GGML_BACKEND_DEVICE_TYPE_GPU; }
static void dev_props(ggml_backend_dev_t dev, ggml_backend_dev_props * props) {
    memset(props, 0, sizeof(*props));
    props->name = props->description = dev_name(dev);
    dev_memory(dev, &props->memory_free, &props->memory_total);
    props->type = dev_type(dev);
    props->caps = {true, false, false, true};
}
static ggml_backend_t dev_init(ggml_backend_dev_t dev, const char *) {
    static ggml_guid guid = {1};
    auto * made = new ggml_backend{};
    made->guid = &guid;
    made->device = dev;
    made->iface.get_name = [](ggml_backend_t b) { return dev_name(b->device); };
    made->iface.free = [](ggml_backend_t b) { delete b; };
    made->iface.synchronize = [](ggml_backend_t) {};
#ifdef OPTIMIZERS
    made->context = &no_context;
    if (backend == "cuda") { made->iface.graph_optimize = ggml_backend_cuda_graph_optimize; }
    if (backend == "metal") { made->iface.graph_optimize = metal_graph_optimize; }
    if (backend == "vulkan") { made->iface.graph_optimize = ggml_vk_graph_optimize; }
#endif
    return made;
}
static ggml_backend_buffer_type_t dev_buffer_type(ggml_backend_dev_t dev) { return &types[index_of(dev)]; }
static bool dev_supports(ggml_backend_dev_t, const ggml_tensor *) { return true; }
static bool dev_supports_type(ggml_backend_dev_t dev, ggml_backend_buffer_type_t t) { return t == dev_buffer_type(dev); }
static bool dev_offload(ggml_backend_dev_t, const ggml_tensor * op) {  // ggml-cuda.cu get_op_batch_size
    if (backend == "metal" && op->op != GGML_OP_MUL_MAT && op->op != GGML_OP_MUL_MAT_ID) { return false; }
    switch (op->op) {
        case GGML_OP_GET_ROWS: return false;
        case GGML_OP_MUL_MAT: return op->ne[1] >= 32;
        case GGML_OP_MUL_MAT_ID:
        case GGML_OP_ROPE:
        case GGML_OP_ROPE_BACK: return op->ne[2] >= 32;
        default: return ggml_nrows(op) >= 32;
    }
}
static ggml_backend_event_t dev_event(ggml_backend_dev_t dev) { return new ggml_backend_event{dev, nullptr}; }
static void dev_event_free(ggml_backend_dev_t, ggml_backend_event_t event) { delete event; }
static void dev_event_wait(ggml_backend_dev_t, ggml_backend_event_t) {}

static void make_devices() {
    for (int i = 0; i < MOST_DEVICES; i++) {
        devices[i].iface = {dev_name, dev_name, dev_memory, dev_type, dev_props, dev_init, dev_buffer_type, nullptr, nullptr,
                            dev_supports, dev_supports_type, dev_offload, dev_event, dev_event_free, dev_event_wait};
        devices[i].reg = &reg;
        types[i].iface = {type_name, type_alloc, type_alignment, nullptr, type_size, nullptr};
        types[i].device = &devices[i];
    }
}

static ggml_type type_of(const std::string & name) {
    for (int t = 0; t < GGML_TYPE_COUNT; t++) {
        if (ggml_type_name(ggml_type(t)) && name == ggml_type_name(ggml_type(t))) {
            return ggml_type(t);
        }
    }
    return GGML_TYPE_F16;
}

static void print_graph(llama_context * ctx, int tokens, int seqs, int outputs) {
    ggml_cgraph * graph = llama_graph_reserve(ctx, tokens, seqs, outputs);
    std::map<const ggml_tensor *, int> places;
    for (int i = 0; i < ggml_graph_n_nodes(graph); i++) {
        const ggml_tensor * t = ggml_graph_node(graph, i);
        places[t] = i;
        fprintf(stderr, "%4d %-16s %-22s %-4s [%lld,%lld,%lld,%lld] %zu%s%s <-", i, ggml_op_desc(t), t->name, ggml_type_name(t->type),
                (long long) t->ne[0], (long long) t->ne[1], (long long) t->ne[2], (long long) t->ne[3], ggml_nbytes(t),
                t->view_src ? " view of " : "", t->view_src ? t->view_src->name : "");
        for (int j = 0; j < GGML_MAX_SRC && t->src[j]; j++) {
            fprintf(stderr, " %s", t->src[j]->name);
            if (places.count(t->src[j])) { fprintf(stderr, "#%d", places[t->src[j]]); }
        }
        fprintf(stderr, "\n");
    }
    for (int i = 0; i < graph->n_leafs; i++) {
        const ggml_tensor * t = graph->leafs[i];
        if (t->flags & GGML_TENSOR_FLAG_INPUT) {
            fprintf(stderr, "leaf %s %s %zu\n", t->name, ggml_type_name(t->type), ggml_nbytes(t));
        }
    }
}

int main(int argc, char ** argv) {
    const bool graph = argc > 1 && std::string(argv[1]) == "--graph";
    llama_log_set([](ggml_log_level level, const char * text, void *) {
        if (level == GGML_LOG_LEVEL_ERROR || getenv("GGML_SCHED_DEBUG")) { fputs(text, stderr); }
    }, nullptr);
    make_devices();
    llama_backend_init();
    for (std::string line; std::getline(std::cin, line);) {
        std::istringstream words(line);
        std::string file;
        words >> file;
        std::map<std::string, std::string> given;
        for (std::string word; words >> word;) {
            given[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
        }
        const auto number = [&](const char * key, int fallback) { return given.count(key) ? std::stoi(given[key]) : fallback; };
        const int many = number("devices", 1);
        backend = given["backend"];
        ggml_backend_dev_t used[MOST_DEVICES + 1] = {};
        for (int i = 0; i < many; i++) { used[i] = &devices[i]; }
        llama_model_tensor_buft_override host[] = {{"\\.ffn_(up|down|gate|gate_up)_(ch|)exps", ggml_backend_cpu_buffer_type()}, {nullptr, nullptr}};
        llama_model_params mp = llama_model_default_params();
        mp.devices = used;
        mp.n_gpu_layers = number("ngl", 999);
        mp.no_alloc = true;
        mp.use_extra_bufts = false;
        mp.load_mode = LLAMA_LOAD_MODE_NONE;
        if (number("cpu_moe", 0)) { mp.tensor_buft_overrides = host; }
        llama_model * model = llama_model_load_from_file(file.c_str(), mp);
        if (!model) { printf("{}\n"); fflush(stdout); continue; }
        llama_context_params cp = llama_context_default_params();
        cp.n_ctx = number("n_ctx", 8192);
        cp.n_ubatch = number("n_ubatch", 512);
        cp.n_batch = number("n_batch", std::max(2048, number("n_ubatch", 512)));
        cp.n_seq_max = number("n_seqs", 1);
        cp.n_outputs_max = number("n_outputs", 0);
        cp.flash_attn_type = number("flash", 1) ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
        cp.kv_unified = number("unified", 1);
        cp.offload_kqv = number("kv_offload", 1);
        cp.swa_full = number("swa_full", 0);
        cp.type_k = type_of(given["type_k"]);
        cp.type_v = type_of(given["type_v"]);
        llama_context * ctx = llama_init_from_model(model, cp);
        if (!ctx) { printf("{}\n"); fflush(stdout); llama_model_free(model); continue; }
        const int tokens = std::min(number("n_ubatch", 512), int(llama_n_ctx(ctx)));
        const int outputs = std::min(tokens, number("n_outputs", 0) ? number("n_outputs", 0) : tokens);
        llama_graph_reserve(ctx, tokens, number("n_seqs", 1), outputs);
        std::map<ggml_backend_buffer_type_t, size_t> compute;
        ggml_backend_sched_t sched = ctx->get_sched();
        for (int i = 0; i < ggml_backend_sched_get_n_backends(sched); i++) {
            ggml_backend_t each = ggml_backend_sched_get_backend(sched, i);
            compute[ggml_backend_sched_get_buffer_type(sched, each)] += ggml_backend_sched_get_buffer_size(sched, each);
        }
        printf("{");
        const char * comma = "";
        for (const auto & [type, bytes] : llama_get_memory_breakdown(ctx)) {
            printf("%s\"%s\": [%zu, %zu, %zu]", comma, ggml_backend_buft_name(type), bytes.model, bytes.context, compute[type]);
            comma = ", ";
        }
        printf("}\n");
        fflush(stdout);
        if (graph) { print_graph(ctx, tokens, number("n_seqs", 1), outputs); }
        llama_free(ctx);
        llama_model_free(model);
    }
}
