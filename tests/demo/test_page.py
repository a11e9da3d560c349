import asyncio
import json
from pathlib import Path

import httpx

from benchmarks.bench_pair.prompts import Job
from demo.command import ROOT, server_environment
from demo.page import HTML, Page
from demo.phases import Second
from demo.server import free_port
from demo.traffic import Answer


def page() -> Page:
    made = Page()
    made.seconds = [Second(1.0, 1, 2.5, 30.0), Second(2.0, 2, 0.5, 60.0)]
    made.answers = [
        Answer(Job("chat", 1, "Hello", 9), 0, [("Hi", 1), (" there", 2)], finished=True),
        Answer(Job("edit", 2, "</script><b>", 9), 1, [("</script>", 1)]),
        Answer(Job("story", 3, "Tell", 9), 0, [("Once", 1)]),
    ]
    return made


def test_the_page_has_the_newest_answer_of_each_client() -> None:
    async def read() -> tuple[str, dict[str, object]]:
        port = free_port()
        async with page().served(port), httpx.AsyncClient() as client:
            html = await client.get(f"http://127.0.0.1:{port}/")
            now = await client.get(f"http://127.0.0.1:{port}/now")
        return html.text, now.json()

    html, now = asyncio.run(read())
    assert html == HTML.read_text(encoding="utf-8")
    assert now["seconds"] == [[1.0, 1, 2.5, 30.0], [2.0, 2, 0.5, 60.0]]
    assert now["answers"] == [
        {"kind": "story", "asked": "Tell", "pieces": [["Once", 1]], "finished": False},
        {"kind": "edit", "asked": "</script><b>", "pieces": [["</script>", 1]], "finished": False},
    ]


def test_a_saved_page_holds_all_answers_and_no_text_ends_its_script(tmp_path: Path) -> None:
    page().save(tmp_path / "answers.html")
    html = (tmp_path / "answers.html").read_text(encoding="utf-8")
    (line,) = (line for line in html.splitlines() if line.startswith("const saved = "))
    saved = json.loads(line.removeprefix("const saved = ").removesuffix(";"))
    assert [each["kind"] for each in saved["answers"]] == ["chat", "edit", "story"]
    assert html.count("</script>") == 1


def test_the_server_inherits_no_other_configuration() -> None:
    environment = server_environment(
        {"ADAPTIVE_SPEC_CONFIG": "elsewhere.yaml", "PYTHONPATH": "mine", "HOME": "/home"}
    )
    assert "ADAPTIVE_SPEC_CONFIG" not in environment
    assert environment["HOME"] == "/home"
    assert environment["PYTHONPATH"] == f"{ROOT}:mine"
