"""The page in headless Chromium: commits in order, modes, a race, stopping, keys, narrow screens; no console errors."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Request, expect, sync_playwright

from tests.services.page.browser import answer, executable, launch, prompt_of, served, shown

TOKENS = 128
PROMPT = prompt_of(TOKENS)
KEY = "a-key-of-some-length"
IDLE = "body:not(.running)"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        path = executable(playwright)
        if path is None:
            pytest.skip("no Chromium here: install the system's package, or run `playwright install chromium`")
        browser = launch(playwright, path)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with served() as url:
        yield url


@pytest.fixture
def page(browser: Browser, url: str) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    complaints: list[str] = []
    page.on("console", lambda m: complaints.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(url)
    expect(page.locator("#model")).to_have_text("toy")
    yield page
    context.close()
    assert [text for text in complaints if "status of 40" not in text] == []


def send(page: Page, text: str = PROMPT) -> dict[str, Any]:
    """Ask, wait for the end; the fields of the request."""
    sent: list[Request] = []
    page.on("request", lambda request: sent.append(request) if request.method == "POST" else None)
    page.fill("#message", text)
    page.keyboard.press("Enter")
    expect(page.locator("#message")).to_have_value("")
    page.wait_for_selector(IDLE)
    fields: dict[str, Any] = json.loads(sent[-1].post_data or "")
    return fields


def slide(page: Page, name: str, value: str) -> None:
    """Move a slider with the keyboard until it says `value`."""
    page.focus(f"#{name}")
    page.keyboard.press("Home")
    output = page.locator(f"#{name} + output")
    while output.inner_text() != value:
        page.keyboard.press("ArrowRight")


def facts(page: Page) -> list[str]:
    """What hovering would say of each token of the last reply, in their order on the page."""
    return page.locator(".turn.assistant").last.locator(".token").evaluate_all("all => all.map(t => t.facts)")


@pytest.mark.parametrize("mode", ["ar", "lossless", "fused", "prove"])
def test_commits_land_in_order_and_make_the_text_of_the_reply(page: Page, url: str, mode: str) -> None:
    page.click("#rejected")
    page.click(f".chips span:text-is('{mode}')")
    slide(page, "max_tokens", f"{TOKENS}")
    fields = send(page)
    assert fields["decoding"]["mode"] == mode
    assert shown(page, ".turn.assistant .text") == answer(url, PROMPT, mode, TOKENS)
    told = facts(page)
    cycles = [int(re.match(r"cycle (\d+)", fact)[1]) for fact in told]  # type: ignore[index]
    assert cycles == sorted(cycles)
    kinds = {kind for kind in ("accepted", "corrected") if any(kind in fact for fact in told)}
    assert kinds == {"ar": set(), "prove": {"accepted"}}.get(mode, {"accepted", "corrected"})
    assert (page.locator(".turn .rejected s").count() > 0) == (mode != "ar")
    rows = page.locator("#cycles b").all_inner_texts()
    assert [int(row) for row in rows] == sorted(map(int, rows), reverse=True)
    line = page.locator(".turn.assistant .facts").last.inner_text().split()
    assert line[line.index("tokens") + 1] == f"{TOKENS}"
    most = page.locator("#acceptance .column").count()
    assert most in {"ar": [0], "fused": range(1, 8)}.get(mode, [7]), "a fused pass verifies what is worth a row"
    assert page.locator("#latency circle").count() == 3


def test_a_conversation_goes_on_and_its_turns_are_sent(page: Page) -> None:
    send(page, "one")
    first = shown(page, ".turn.assistant .text")
    fields = send(page, "two")
    roles = [(message["role"], message["content"]) for message in fields["messages"]]
    assert roles == [("user", "one"), ("assistant", first), ("user", "two")]


def test_modes_and_numbers_by_keyboard(page: Page) -> None:
    page.keyboard.press("Alt+4")
    expect(page.locator("input[value=lossless]")).to_be_checked()
    slide(page, "block_size", "3")
    slide(page, "max_tokens", "16")
    page.keyboard.press("/")
    page.keyboard.type("a")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("b")
    expect(page.locator("#message")).to_have_value("a\nb")
    fields = send(page)
    assert fields["decoding"] == {"mode": "lossless", "trace": True, "block_size": 3}
    assert fields["max_tokens"] == 16
    page.keyboard.press("Alt+3")
    fields = send(page)
    assert fields["decoding"]["mode"] == "prove"
    assert fields["decoding"]["gate"] == "product"
    assert "temperature" not in fields  # it commits on thresholds, and refuses one


def test_a_race_runs_both_lanes_on_the_same_prompt(page: Page, url: str) -> None:
    slide(page, "max_tokens", f"{TOKENS}")
    for start, first in (("together", "ar"), ("one after the other", "lossless")):
        if not page.locator("#race").is_visible():
            page.keyboard.press("Alt+r")
        page.get_by_label(start).check()
        page.get_by_label("Mode of lane A").select_option(first)
        send(page)
        verdict = page.locator("#verdict").inner_text()
        assert verdict.endswith("The texts are identical.")
        assert "times the tokens per second of" in verdict
        for lane in range(2):
            assert shown(page, f".lane:nth-child({lane + 1}) .text") == answer(url, PROMPT, "ar", TOKENS)
            assert float(page.locator(".rate").nth(lane).inner_text()) > 0


def test_a_race_draws_with_one_seed(page: Page) -> None:
    slide(page, "temperature", "0.8")
    page.keyboard.press("Alt+r")
    send(page)
    assert page.locator("#verdict").inner_text().endswith("The texts are identical.")


@pytest.mark.parametrize("by", ["Escape", "button"])
def test_stopping_keeps_what_there_is_and_ends_the_work(page: Page, url: str, by: str) -> None:
    page.click(".chips span:text-is('ar')")
    page.fill("#message", PROMPT)
    page.keyboard.press("Enter")
    page.wait_for_selector(".turn .token")
    if by == "button":
        page.click("#stop")
    else:
        page.keyboard.press("Escape")
    page.wait_for_selector(IDLE)
    assert "stopped" in page.locator(".turn.assistant .facts").inner_text()
    text = shown(page, ".turn.assistant .text")
    whole = answer(url, PROMPT, "ar", 256)
    assert whole.startswith(text)
    assert len(text) < len(whole)
    expect(page.locator("#send")).to_be_visible()


def test_chats_are_kept_in_this_browser(page: Page) -> None:
    send(page, "remember this")
    text = shown(page, ".turn.assistant .text")
    page.reload()
    expect(page.locator("#model")).to_have_text("toy")
    expect(page.locator("#welcome")).to_be_visible()
    page.keyboard.press("Alt+h")
    page.click("#chats button:has-text('remember this')")
    assert shown(page, ".turn.assistant .text") == text
    page.keyboard.press("Alt+n")
    expect(page.locator("#welcome")).to_be_visible()
    page.keyboard.press("Alt+h")
    page.click("#forget")
    page.keyboard.press("Alt+h")
    expect(page.locator("#chats")).to_have_text("None yet.")


def test_a_new_chat_in_mid_reply_leaves_the_old_one_whole(page: Page) -> None:
    page.click(".chips span:text-is('ar')")
    page.fill("#message", PROMPT)
    page.keyboard.press("Enter")
    page.wait_for_selector(".turn .token")
    page.keyboard.press("Alt+n")
    expect(page.locator(".turn")).to_have_count(0)
    fields = send(page, "something else")
    assert [message["content"] for message in fields["messages"]] == ["something else"]
    page.keyboard.press("Alt+h")
    assert page.locator("#chats button").all_inner_texts() == ["something else", PROMPT]
    page.click(f"#chats button:text-is('{PROMPT}')")
    expect(page.locator(".turn")).to_have_count(2)
    assert shown(page, ".turn.assistant .text")


def test_a_refusal_is_shown_and_the_question_comes_back(page: Page) -> None:
    long = "x y " * 2000
    page.fill("#message", long)
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("tokens")
    expect(page.locator("#message")).to_have_value(long)
    assert len(send(page, "short")["messages"]) == 1


def test_a_key_is_asked_for_and_sent(page: Page, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text(f"{KEY}\n")
    with served(security={"api_keys_file": str(keys)}) as url:
        page.goto(url)
        expect(page.locator("#model")).to_contain_text("No API key")
        for given, answer in (("another", "Incorrect API key"), (KEY, "toy")):
            page.fill("#key-input", given)
            page.keyboard.press("Enter")
            expect(page.locator("#model")).to_contain_text(answer)
        send(page, "hello")
        assert shown(page, ".turn.assistant .text")
        page.reload()
        expect(page.locator("#model")).to_have_text("toy")  # the key lives as long as the tab
        assert KEY not in page.evaluate("Object.values(localStorage).join()")


def test_the_theme_is_chosen_and_kept(page: Page) -> None:
    """The plain parts and the tokens alike; the system's wish holds until one is chosen."""
    page.click(".chips span:text-is('lossless')")
    send(page)
    page.evaluate("document.getAnimations().forEach(animation => animation.finish())")
    background = """[document.body, [...document.querySelectorAll(".turn.assistant .token.accepted")].at(-1)]
        .map(element => getComputedStyle(element).backgroundColor)"""
    page.emulate_media(color_scheme="light")
    light = page.evaluate(background)
    page.emulate_media(color_scheme="dark")
    dark = page.evaluate(background)
    assert all(one != other for one, other in zip(light, dark, strict=True))
    for chosen, colour in (("light", light), ("dark", dark), ("auto", dark), ("light", light)):
        page.keyboard.press("Alt+t")
        expect(page.locator("html")).to_have_attribute("data-theme", chosen)
        assert page.evaluate(background) == colour
    page.reload()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == light[0]


@pytest.mark.parametrize("width", [320, 390, 800])
def test_narrow_screens_have_all_of_it_and_scroll_only_down(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 844})
    expect(page.locator("#gauges")).to_be_hidden()
    page.click(".views [data-view=gauges]")
    page.click(".chips span:text-is('lossless')")
    send_from_chat = page.locator(".views [data-view=chat]")
    send_from_chat.click()
    send(page)
    for view in ("chat", "race", "gauges"):
        page.click(f".views [data-view={view}]")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate("document.documentElement.scrollHeight") <= 844


def test_every_control_has_a_name_and_a_visible_focus(page: Page) -> None:
    page.keyboard.press("Alt+3")
    nameless = page.evaluate(
        "[...document.querySelectorAll('button, input, textarea, select')]"
        ".filter(e => e.checkVisibility() && !(e.ariaLabel || e.textContent.trim() || e.labels?.length))"
        ".map(e => e.outerHTML)"
    )
    assert nameless == []
    outlined = "e => [e, e.nextElementSibling].some(n => n && getComputedStyle(n).outlineStyle !== 'none')"
    seen = 0
    page.keyboard.press("Tab")
    while not page.evaluate("document.activeElement === document.body"):
        assert page.evaluate(f"({outlined})(document.activeElement)"), page.evaluate("document.activeElement.outerHTML")
        seen += 1
        page.keyboard.press("Tab")
    assert seen > 5


def test_events_are_read_however_the_bytes_arrive(page: Page) -> None:
    script = """async (size) => {
        const { events } = await import("./static/sse.js");
        const text = 'data: {"a": "é😀"}\\n\\n: note\\n\\ndata: b\\ndata: c\\n\\ndata: [DONE]\\n\\n';
        const bytes = new TextEncoder().encode(text);
        let at = 0;
        const pull = (stream) => at < bytes.length ? stream.enqueue(bytes.slice(at, at += size)) : stream.close();
        return Array.fromAsync(events(new ReadableStream({ pull })));
    }"""
    for size in (1, 2, 3, 5, 7, 100):
        assert page.evaluate(script, size) == ['{"a": "é😀"}', "b\nc", "[DONE]"]


def test_what_a_reply_is_measured_by(page: Page) -> None:
    script = """async () => {
        const { Measure } = await import("./static/measure.js");
        const measure = new Measure(1000);
        const commit = (cycle, tokens, drafted, accepted) =>
            ({ cycle, tokens: Array(tokens).fill({}), drafted, accepted });
        measure.add(commit(1, 1, 0, 0), 1100);
        measure.add(commit(1, 0, 3, 0), 1150);
        measure.add(commit(2, 3, 3, 2), 1300);
        measure.finish(1500);
        const { tokens, drafted, accepted } = measure;
        const times = [measure.firstToken(), measure.betweenCommits(), measure.total(9999)];
        return [tokens, drafted, accepted, times, measure.rate(9999), measure.perCycle(), measure.acceptance()];
    }"""
    tokens, drafted, accepted, times, rate, per_cycle, acceptance = page.evaluate(script)
    assert (tokens, drafted, accepted, times) == (4, [2, 2, 2], [1, 1, 0], [100, 200, 500])
    assert (rate, per_cycle, acceptance) == (8, 2, pytest.approx(1 / 3))
