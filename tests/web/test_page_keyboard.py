"""The whole way by keyboard: from an empty page to a question of one's own, its answer, and what to change."""

from __future__ import annotations

from typing import Any

NEED = '.headline [data-path="quantities.total_needed.expected"]'
FOCUSED = """() => {
  const one = document.activeElement;
  const outline = getComputedStyle(one.matches('.goal input') ? one.nextElementSibling : one);
  const isMarked = outline.outlineStyle !== 'none' && parseFloat(outline.outlineWidth) > 0;
  const inView = one.getClientRects().length > 0;
  return { name: one.dataset.focus ?? one.id ?? '', tag: one.tagName, isMarked, inView };
}"""
MOST_PRESSES = 120


def tab_to(page: Any, name: str, press: str = "Tab") -> None:
    """Presses until the focus is there; every stop on the way is marked and seen."""
    for _ in range(MOST_PRESSES):
        page.keyboard.press(press)
        found = page.evaluate(FOCUSED)
        assert found["isMarked"] or found["tag"] in ("BODY", "SECTION"), found
        assert found["inView"], found
        if found["name"] == name:
            return
    raise AssertionError(f"{name} is not reached by {press}")


def test_everything_is_reached_and_done_by_keyboard(page: Any, address: str) -> None:
    page.goto(address)
    page.wait_for_selector(".ready .headline")
    tab_to(page, "language")
    tab_to(page, "goal-run")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#train-method")
    tab_to(page, "model")
    page.keyboard.type("qwen2.5-7b")
    page.wait_for_selector("#model-list:not([aria-busy]) [role=option]")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.querySelector('.subject').textContent.includes('Qwen2.5-7B')")
    tab_to(page, "gpu")
    page.keyboard.type("rtx-4060")
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.querySelector('.card-line strong').textContent === 'GeForce RTX 4060'")
    tab_to(page, "train-micro_batch_size-slider")
    before = page.get_attribute(NEED, "data-value")
    page.keyboard.press("ArrowRight")
    page.wait_for_function(f"() => document.querySelector('{NEED}').dataset.value !== '{before}'")
    assert page.get_attribute(".verdict", "data-value") == "does not fit"
    page.wait_for_selector('[data-focus="fixes-more"]')
    tab_to(page, "fixes-more")
    page.keyboard.press("Enter")
    page.wait_for_selector(".suggestions .option")
    tab_to(page, "apply-0")
    before = page.get_attribute(NEED, "data-value")
    page.keyboard.press("Enter")
    page.wait_for_function(f"() => document.querySelector('{NEED}').dataset.value !== '{before}'")
    tab_to(page, "tab-change", "Shift+Tab")
    page.keyboard.press("ArrowLeft")
    page.wait_for_selector(".terms")
    assert page.evaluate("document.activeElement.id") == "tab-why"
    tab_to(page, "moment-0")
    tab_to(page, "term-weights")
    page.keyboard.press("Enter")
    page.wait_for_selector('.terms > details[data-term="weights"] .source')
    assert "model=Qwen/Qwen2.5-7B" in page.url


def test_keys_wait_for_the_list_of_what_was_typed(page: Any, address: str) -> None:
    """Answers to what was half typed come late on a busy machine: none of their models is taken."""
    page.goto(f"{address}#model=gpt2&task=load")
    page.wait_for_selector(".ready .headline")
    page.evaluate("""() => { const own = window.fetch; window.fetch = async (...given) => {
        if (String(given[0]).includes('models')) await new Promise((done) => setTimeout(done, 700));
        return own(...given); }; }""")
    page.focus("#model")
    page.keyboard.type("qwen")
    page.wait_for_selector("#model-list:not([aria-busy]) [role=option]")
    page.keyboard.type("2.5-7b")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.querySelector('.subject').textContent.includes('Qwen2.5-7B')")
    assert "model=Qwen/Qwen2.5-7B" in page.url


def test_escape_leaves_a_list_as_it_was(page: Any, address: str) -> None:
    page.goto(f"{address}#model=gpt2&task=load")
    page.wait_for_selector(".ready .headline")
    page.focus("#model")
    page.keyboard.type("qwen")
    page.wait_for_selector("#model-list:not([aria-busy]) [role=option]")
    assert page.get_attribute("#model", "aria-expanded") == "true"
    page.keyboard.press("ArrowDown")
    assert page.get_attribute("#model", "aria-activedescendant") == "model-0"
    page.keyboard.press("Escape")
    assert page.input_value("#model") == "gpt2"
    assert page.get_attribute("#model", "aria-expanded") == "false"
    assert page.url.endswith("#model=gpt2&task=load")
