"""Runs `sgl.Engine` with the options of the command line; requests come and go as JSON lines."""

import json
import os
import sys
from typing import Any

DEFAULTS = {"temperature": 0.0, "max_new_tokens": 32, "ignore_eos": True}


def main() -> None:
    """Serve until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what SGLang prints belongs to the log
    import sglang

    engine = sglang.Engine(**json.loads(sys.argv[1]))

    def reply(value: Any) -> None:
        answers.write(json.dumps(value) + "\n")
        answers.flush()

    reply("ready")
    for line in sys.stdin:
        reply(generate(engine, json.loads(line)))
    engine.shutdown()


def generate(engine: Any, jobs: list[dict[str, Any]]) -> dict[str, Any]:
    """Answers by name of the request."""
    words = [job["prompt"] for job in jobs]
    asked = {"input_ids": words} if isinstance(words[0], list) else {"prompt": words}
    outputs = engine.generate(
        **asked,
        sampling_params=[DEFAULTS | job["options"] for job in jobs],
        rid=[job["name"] for job in jobs],
    )
    return {
        output["meta_info"]["id"]: {
            "tokens": list(output["output_ids"]),
            "text": output.get("text", ""),
            "reason": output["meta_info"]["finish_reason"],
            "meta": {
                key: value
                for key, value in output["meta_info"].items()
                if key.startswith("spec_") or key == "num_retractions"
            },
        }
        for output in outputs
    }


if __name__ == "__main__":
    main()
