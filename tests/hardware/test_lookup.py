"""Names of accelerators as people and tools write them."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramwise.errors import UnknownNameError
from vramwise.hardware import Gpu, find_gpu, find_installed_gpu, gpus

NAMES = {
    "4090": "rtx-4090",
    "rtx4090": "rtx-4090",
    "GeForce RTX 4090": "rtx-4090",
    "NVIDIA GeForce RTX 4090": "rtx-4090",
    "RTX 4090 24GB": "rtx-4090",
    "GeForce RTX 4090 D": "rtx-4090-d",
    "3090ti": "rtx-3090-ti",
    "NVIDIA GeForce RTX 4070 Ti SUPER": "rtx-4070-ti-super",
    "RTX 3060 12GB": "rtx-3060-12gb",
    "GeForce RTX 3080": "rtx-3080",
    "NVIDIA GeForce RTX 3080 12 GB": "rtx-3080-12gb",
    "A100 80G": "a100-sxm-80gb",
    "A100-80GB": "a100-sxm-80gb",
    "A100-40GB": "a100-sxm-40gb",
    "A100": "a100-sxm-40gb",
    "A100 SXM4 80GB": "a100-sxm-80gb",
    "NVIDIA A100-SXM4-80GB": "a100-sxm-80gb",
    "NVIDIA A100 80GB PCIe": "a100-pcie-80gb",
    "NVIDIA A100-PCIE-40GB": "a100-pcie-40gb",
    "H100": "h100-sxm-80gb",
    "H100-80GB": "h100-sxm-80gb",
    "H100 SXM5 80GB": "h100-sxm-80gb",
    "NVIDIA H100 80GB HBM3": "h100-sxm-80gb",
    "NVIDIA H100 PCIe": "h100-pcie-80gb",
    "NVIDIA H100 NVL": "h100-nvl-94gb",
    "h100-sxm-80gb": "h100-sxm-80gb",
    "h100_sxm": "h100-sxm-80gb",
    "H20 96GB": "h20-96gb",
    "H200 SXM 141GB": "h200-sxm-141gb",
    "GH200 96GB HBM3": "gh200-96gb-hbm3",
    "NVIDIA GH200 480GB": "gh200-96gb-hbm3",
    "B200": "b200-sxm-180gb",
    "b200 192gb": "b200-sxm-180gb",
    "GB300": "gb300-288gb",
    "V100": "v100-sxm2-16gb",
    "V100 32GB": "v100-sxm2-32gb",
    "Tesla V100-SXM2-16GB": "v100-sxm2-16gb",
    "Tesla V100 SXM2 32GB": "v100-sxm2-32gb",
    "Tesla T4": "t4",
    "T4 16 GB": "t4",
    "L4": "l4",
    "L40S 48GB": "l40s",
    "A10": "a10-pcie-24gb",
    "A10 PCIe 24GB": "a10-pcie-24gb",
    "A10G 24GB (AWS g5)": "a10g-24gb",
    "A40 PCIe 48GB": "a40-pcie-48gb",
    "A6000": "rtx-a6000",
    "RTX 6000 Ada": "rtx-6000-ada",
    "NVIDIA RTX 6000 Ada Generation": "rtx-6000-ada",
    "Quadro RTX 6000": "quadro-rtx-6000",
    "RTX PRO 6000 Blackwell": "rtx-pro-6000-blackwell",
    "5060": "rtx-5060",
    "RTX 5060 Ti 8GB": "rtx-5060-ti-8gb",
    "4060-ti": "rtx-4060-ti-16gb",
    "NVIDIA GeForce RTX 4060 Laptop GPU": "rtx-4060-laptop",
    "RTX 4090 Laptop GPU": "rtx-4090-laptop",
    "RTX 4070 Mobile": "rtx-4070-laptop",
    "NVIDIA GeForce RTX 3050 6GB Laptop GPU": "rtx-3050-laptop-6gb",
    "NVIDIA RTX 2000 Ada Generation Laptop GPU": "rtx-2000-ada-laptop",
    "GeForce RTX 2070 with Max-Q Design": "rtx-2070-max-q",
    "GTX 1660 Ti": "gtx-1660-ti",
    "RTX A1000": "rtx-a1000",
    "RX 7600 XT": "rx-7600-xt",
    "Radeon PRO W7800 48GB": "pro-w7800-48gb",
    "Arc B580": "arc-b580-12gb",
    "Jetson Orin Nano 8GB": "jetson-orin-nano-8gb",
    "Orin Nano Super": "jetson-orin-nano-8gb",
    "Xavier NX 16GB": "jetson-xavier-nx-16gb",
    "Intel(R) Arc(TM) A770 Graphics": "arc-a770-16gb",
    "NVIDIA Thor": "jetson-agx-thor-128gb",
    "NVIDIA GB10": "gb10-128gb",
    "m3-max-64gb": "apple-m3-max-40core-64gb",
    "Apple M3 Max 36 GB": "apple-m3-max-30core-36gb",
    "Strix Halo 64GB": "ryzen-ai-max-plus-395-64gb",
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": "rtx-pro-6000-blackwell-server",
    "TITAN RTX": "titan-rtx",
    "MI300X": "mi300x",
    "AMD Instinct MI300X": "mi300x",
    "Radeon RX 7900 XTX": "rx-7900-xtx",
    "Ryzen AI Max+ 395 (Strix Halo)": "ryzen-ai-max-plus-395-32gb",
    "Apple M4 Max (40-core)": "apple-m4-max-40core-48gb",
    "m2 ultra": "apple-m2-ultra-64gb",
    "Gaudi 3": "gaudi-3",
    "DGX Spark": "gb10-128gb",
    "TPU v5e": "tpu-v5e",
}


@pytest.mark.parametrize(("name", "gpu_id"), NAMES.items())
def test_names_people_use(name: str, gpu_id: str) -> None:
    assert find_gpu(name).gpu.id == gpu_id


def test_every_id_and_every_name_of_the_table_finds_its_row() -> None:
    for gpu in gpus():
        assert find_gpu(gpu.id).gpu is gpu
        assert find_gpu(gpu.name).gpu.name.startswith(gpu.name), gpu.name
        assert (find_gpu(gpu.id).note is None) == (len(gpu.memory_options_gb) < 2)
        for size in gpu.memory_options_gb:
            assert find_gpu(f"{gpu.name} {size}GB").gpu.memory_nominal_gb == size


def test_a_name_of_several_cards_takes_sxm_then_the_lowest_id_and_says_so() -> None:
    match = find_gpu("A100-80GB")
    assert match.gpu.id == "a100-sxm-80gb"
    assert match.note == ('GPU "A100-80GB" fits several cards: took a100-sxm-80gb (others: a100-pcie-80gb)')
    assert "rtx-6000-ada" in str(find_gpu("RTX 6000").note)


def test_an_exact_name_needs_no_note() -> None:
    assert find_gpu("RTX 4090").note is None
    assert find_gpu("NVIDIA H100 80GB HBM3").note is None


@pytest.mark.parametrize(
    "name",
    [
        "4900",
        "gaudi",
        "H100 40GB",
        "RTX 4090 Ti Laptop GPU",
        "foo",
        "",
        "80gb",
        "nvidia",
        "ada",
        "A1100",
        "5080 Ti",
        "RTX 3080 Max-Q",
        "4050",
        "Orin",
        "m3-max-200gb",
        "RTX 5070 16GB Laptop GPU",
        "laptop",
    ],
)
def test_what_is_no_card_is_refused(name: str) -> None:
    with pytest.raises(UnknownNameError, match=r"^unknown GPU .*\(vramwise gpus lists all\)$"):
        find_gpu(name)


def test_of_several_sizes_of_memory_the_name_takes_one_and_the_note_names_the_others() -> None:
    for name, other in (
        ("4060-ti", "rtx-4060-ti-8gb"),
        ("GeForce RTX 3080", "rtx-3080-12gb"),
        ("A2000", "rtx-a2000-6gb"),
    ):
        assert other in str(find_gpu(name).note)
    assert find_gpu("m3-max").note == (
        'GPU "m3-max" is sold with 36, 48, 64, 96 or 128 GB: took the smallest, apple-m3-max-30core-36gb; '
        'write the size, as in "m3-max 128GB"'
    )


@pytest.mark.parametrize("name", ["NVIDIA GeForce RTX 4060 ...", "NVIDIA GeForce RTX 4060…"])
def test_a_name_that_nvidia_smi_cut_off_is_not_guessed(name: str) -> None:
    """A whole name is never cut off, so it is not the desktop RTX 4060."""
    with pytest.raises(UnknownNameError, match=r"did you mean rtx-4060-laptop, rtx-4060-ti-16gb, .*nvidia-smi -L"):
        find_gpu(name)
    match = find_gpu("NVIDIA GeForce RTX 4050 ...")
    assert match.gpu.id == "rtx-4050-laptop"
    assert "cut off" in str(match.note)


@pytest.mark.parametrize("gpu", [gpu for gpu in gpus() if "laptop" in gpu.id], ids=lambda gpu: gpu.id)
def test_no_name_of_a_laptop_card_means_a_desktop_one_nor_the_other_way(gpu: Gpu) -> None:
    assert "laptop" in find_gpu(gpu.name).gpu.id
    assert "laptop" in find_gpu(f"NVIDIA {gpu.name}").gpu.id
    with suppress(UnknownNameError):  # sold for laptops alone
        assert "laptop" not in find_gpu(gpu.name.replace("Laptop GPU", "").replace("Laptop", "")).gpu.id


def test_the_error_names_the_nearest_cards() -> None:
    with pytest.raises(UnknownNameError, match=r'^unknown GPU "4900": did you mean rtx-4090, rtx-4080, '):
        find_gpu("4900")


@given(st.text(max_size=60))
def test_any_text_is_a_card_or_a_clear_error(name: str) -> None:
    try:
        message = find_gpu(name).gpu.id
    except UnknownNameError as error:
        message = str(error)
    assert message
    assert "\n" not in message


@given(st.sampled_from([gpu.id for gpu in gpus()]), st.sampled_from(["upper", "title", "swapcase"]))
def test_letter_case_does_not_matter(gpu_id: str, case: str) -> None:
    assert find_gpu(getattr(gpu_id, case)()).gpu.id == gpu_id


@pytest.mark.parametrize(
    ("name", "gib", "gpu_id"),
    [
        ("NVIDIA GeForce RTX 3060", 12, "rtx-3060-12gb"),
        ("NVIDIA GeForce RTX 3060", 8, "rtx-3060-8gb"),
        ("NVIDIA GeForce RTX 4060 Ti", 8, "rtx-4060-ti-8gb"),
        ("NVIDIA GeForce RTX 3080 Laptop GPU", 8, "rtx-3080-laptop-8gb"),
        ("NVIDIA H200", 140, "h200-sxm-141gb"),
        ("NVIDIA H20", 140, "h20-3e-141gb"),
        ("NVIDIA H20-3e", 140, "h20-3e-141gb"),
        ("NVIDIA H20-3e", None, "h20-3e-141gb"),
        ("NVIDIA H20", 96, "h20-96gb"),
        ("NVIDIA H20", None, "h20-96gb"),
        ("NVIDIA GeForce RTX 4090", None, "rtx-4090"),
    ],
)
def test_the_installed_memory_tells_cards_of_one_name_apart(name: str, gib: int | None, gpu_id: str) -> None:
    assert find_installed_gpu(name, None if gib is None else gib * 2**30 - 2**26).gpu.id == gpu_id


@pytest.mark.parametrize(
    ("name", "gpu_id"),
    [
        ("Mac M3", "apple-m3-8gb"),
        ("Mac Studio M3 Ultra 512GB", "apple-m3-ultra-512gb"),
        ("MacBook Pro M4 Max 64GB", "apple-m4-max-40core-64gb"),
        ("mac mini m4 pro 48gb", "apple-m4-pro-48gb"),
        ("colab t4", "t4"),
        ("kaggle p100", "p100-sxm2-16gb"),
        ("dgx h100", "h100-sxm-80gb"),
        ("dgx spark", "gb10-128gb"),
        ("a100-80", "a100-sxm-80gb"),
        ("3090s", "rtx-3090"),
    ],
)
def test_where_a_card_stands_is_no_part_of_its_name(name: str, gpu_id: str) -> None:
    assert find_gpu(name).gpu.id == gpu_id


@pytest.mark.parametrize(
    ("name", "first"),
    [("4090ti", "rtx-4090"), ("rtx 6060", "rtx-5060"), ("rx7800", "rx-7800-xt"), ("b400", "b200-sxm-180gb"),
     ("gtx970", "gtx-1070"), ("h1000", "h100-sxm-80gb"), ("mi500", "mi100"), ("rtx 4080 ti", "rtx-4080")],
)  # fmt: skip
def test_what_is_suggested_is_of_the_same_brand_or_letters(name: str, first: str) -> None:
    with pytest.raises(UnknownNameError) as error:
        find_gpu(name)
    assert error.value.matches[0] == first


def test_no_card_is_said_by_their_number() -> None:
    with pytest.raises(UnknownNameError, match=r"num_gpus 0 \(-n 0\) is CPU only"):
        find_gpu("cpu")


@pytest.mark.parametrize("name", ["2x", "8", "4 x"])
def test_a_number_without_a_card_is_told_so(name: str) -> None:
    with pytest.raises(UnknownNameError, match="a number of cards stands before their name, such as 2xh100"):
        find_gpu(name)


def test_nothing_of_a_card_is_no_card() -> None:
    assert find_gpu("0.5% of h100").gpu.id == "0.5% of h100-sxm-80gb"
    with pytest.raises(UnknownNameError):
        find_gpu("0% of h100")
