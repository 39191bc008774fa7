"""Headless Chromium on the page of a toy server that runs in a thread of its own."""

import asyncio
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Browser, Page, Playwright

from prove_core.model.window import PassOutput, Window
from prove_core.text.prompt import Message, PromptRenderer
from tests.core.text.vocabularies import byte_level
from tests.core.toy import ToyRunner, continuation
from tests.services.toy_engine import run_in_loop
from tests.services.toy_server import EOS, toy_server

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
PASS_S = 0.004


class PacedRunner(ToyRunner):
    """A toy whose passes take a moment, so that there is something to watch and to stop."""

    def run(self, windows: Sequence[Window]) -> PassOutput:
        time.sleep(PASS_S)
        output = super().run(windows)
        return replace(output, seconds=PASS_S)


def executable(playwright: Playwright) -> str | None:
    """A Chromium: the system's, or the one that `playwright install` fetched."""
    own = playwright.chromium.executable_path
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    return found or (own if Path(own).exists() else None)


def launch(playwright: Playwright, path: str) -> Browser:
    """Without a sandbox of its own: in containers it cannot have one."""
    return playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])


@contextmanager
def served(**settings: Any) -> Iterator[str]:
    """The URL of a running toy server; `settings` as in the YAML file."""
    urls: list[str] = []
    up = threading.Event()
    loops: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def run() -> None:
        over = asyncio.Event()
        loops.append((asyncio.get_running_loop(), over))
        async with toy_server(tokens=16384, runner=PacedRunner, **settings) as server:
            urls.append(f"http://127.0.0.1:{server.port}")
            up.set()
            await over.wait()
            assert await server.idle()

    thread = threading.Thread(target=lambda: run_in_loop(run()))
    thread.start()
    assert up.wait(60)
    try:
        yield urls[0]
    finally:
        loop, over = loops[0]
        loop.call_soon_threadsafe(over.set)
        thread.join(60)
        assert not thread.is_alive()


def prompt_of(tokens: int) -> str:
    """A message that the toy answers with at least so many tokens."""
    renderer = PromptRenderer(byte_level())
    for number in range(1000):
        text = f"prompt {number}"
        if EOS not in continuation(renderer.render([Message("user", text, None)]), tokens):
            return text
    raise AssertionError("every answer of the toy is short")


def answer(url: str, text: str, mode: str, max_tokens: int) -> str:
    """The whole reply to one message, as the API gives it."""
    fields = {"model": "toy", "messages": [{"role": "user", "content": text}], "max_tokens": max_tokens}
    reply = httpx.post(f"{url}/v1/chat/completions", json={**fields, "decoding": {"mode": mode}}, timeout=60)
    content: str = reply.json()["choices"][0]["message"]["content"]
    return content


def shown(page: Page, selector: str) -> str:
    """The text of an element without the marks of what was rejected."""
    text: str = page.locator(selector).last.evaluate(
        "e => { const c = e.cloneNode(true); c.querySelectorAll('.rejected').forEach(m => m.remove()); "
        "return c.textContent; }"
    )
    return text
