"""Makes calls of every API with an official client, of OpenAI or of Anthropic, and prints a line of JSON for each:

    {"kind": "messages", "way": "streamed", "want": "ok", "as_wanted": true, "got": {...}}

"got" is all that the client was given, without what differs between two equal requests: identifiers, times, and what a
cache held. Of a stream it is every event.
"""

import argparse
import json
import re

QUESTION = "What is the capital of France?"
USER = [{"role": "user", "content": QUESTION}]
SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
VOLATILE = {
    "created", "created_at", "completed_at", "cached_tokens", "created_cache_tokens", "cache_write_tokens",
    "cache_read_input_tokens", "cache_creation_input_tokens", "request_id",
}


def plain(value):
    """Turns what a client returns into JSON values, without what is volatile."""
    if hasattr(value, "model_dump"):
        value = value.model_dump(mode="json", warnings=False)
    if isinstance(value, dict):
        kept = {k: plain(v) for k, v in value.items() if k not in VOLATILE}
        for k in kept:
            if (k == "id" or k.endswith("_id")) and isinstance(kept[k], str):
                kept[k] = re.sub(r"[-_0-9a-f]{8,}.*", "…", kept[k])
        return kept
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return value


def whole(call, **params):
    return lambda: plain(call(**params))


def streamed(call, **params):
    return lambda: [plain(event) for event in call(stream=True, **params)]


def helped(call, **params):
    """Streams with the client's own helper, which puts the events together."""
    def run():
        with call(**params) as stream:
            return plain(stream.get_final_message())
    return run


def of_openai(base, model):
    import openai

    c = openai.OpenAI(base_url=base + "/v1", api_key="none", max_retries=0, timeout=60)
    tool = {"type": "function", "function": {"name": "say", "parameters": SCHEMA}}
    flat = {"type": "function", "name": "say", "parameters": SCHEMA, "strict": False}
    chat = {"model": model, "messages": USER, "max_tokens": 12}
    answer = {"model": model, "input": QUESTION, "max_output_tokens": 12}
    turns = [
        {"role": "user", "content": QUESTION},
        {"type": "function_call", "call_id": "call_1", "name": "say", "arguments": '{"text":"Paris"}'},
        {"type": "function_call_output", "call_id": "call_1", "output": "said"},
    ]
    chats, responses = c.chat.completions.create, c.responses.create
    rerank = {"model": model, "query": QUESTION, "documents": ["Paris", "Berlin", "Rome"], "top_n": 2}
    yield "models", "whole", "ok", lambda: [plain(m.id) for m in c.models.list()]
    yield "one model", "whole", "ok", lambda: c.models.retrieve(model).id
    yield "no such model", "whole", "404", lambda: c.models.retrieve("none").id
    for way, ask in ("whole", whole), ("streamed", streamed):
        yield "chat", way, "ok", ask(chats, **chat)
        yield "chat, a tool is called", way, "ok", ask(chats, **chat, tools=[tool], tool_choice="required")
        yield "chat, this tool is called", way, "ok", ask(
            chats, **chat, tools=[tool], tool_choice={"type": "function", "function": {"name": "say"}})
        yield "completion", way, "ok", ask(c.completions.create, model=model, prompt=QUESTION, max_tokens=12)
        yield "response", way, "ok", ask(responses, **answer, instructions="Be brief.")
        yield "response to turns", way, "ok", ask(responses, **{**answer, "input": turns})
        yield "response, a tool is called", way, "ok", ask(responses, **answer, tools=[flat], tool_choice="required")
        yield "response of no model", way, "404", ask(responses, **{**answer, "model": "none"})
    yield "embedding", "whole", "ok", whole(c.embeddings.create, model=model, input=QUESTION)
    yield "embeddings", "whole", "ok", whole(
        c.embeddings.create, model=model, input=["one", "two"], encoding_format="float", dimensions=8)
    yield "rerank", "raw", "ok", lambda: plain(c.post("/rerank", body=rerank, cast_to=object))


def of_anthropic(base, model):
    import anthropic

    c = anthropic.Anthropic(base_url=base, api_key="none", max_retries=0, timeout=60)
    tool = {"name": "say", "input_schema": SCHEMA}
    ask = {"model": model, "max_tokens": 12, "messages": USER}
    turns = [
        *USER,
        {"role": "assistant", "content": [
            {"type": "tool_use", "id": "toolu_1", "name": "say", "input": {"text": "Paris"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "said"}]},
    ]
    for way, how in ("whole", whole), ("streamed", streamed):
        create = c.messages.create
        yield "message", way, "ok", how(create, **ask)
        yield "message with a system text", way, "ok", how(create, **ask, system="Be brief.")
        yield "message to turns", way, "ok", how(create, **{**ask, "messages": turns}, tools=[tool])
        yield "message, a tool is called", way, "ok", how(create, **ask, tools=[tool], tool_choice={"type": "any"})
        yield "message of no model", way, "404", how(create, **{**ask, "model": "none"})
    yield "message", "helped", "ok", helped(c.messages.stream, **ask)
    yield "message, a tool is called", "helped", "ok", helped(
        c.messages.stream, **ask, tools=[tool], tool_choice={"type": "tool", "name": "say"})
    yield "count", "whole", "ok", whole(c.messages.count_tokens, model=model, messages=USER, system="Be brief.")
    yield "count of no model", "whole", "404", whole(c.messages.count_tokens, model="none", messages=USER)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", required=True, help="the server, such as http://127.0.0.1:8000")
    parser.add_argument("--model", required=True)
    parser.add_argument("--client", required=True, choices=["openai", "anthropic"])
    given = parser.parse_args()
    calls = {"openai": of_openai, "anthropic": of_anthropic}[given.client]
    for kind, way, want, call in calls(given.base, given.model):
        try:
            got, status = {"value": call()}, "ok"
        except Exception as error:  # whatever the client raises is its user's answer
            status = str(getattr(error, "status_code", error))
            got = {"exception": type(error).__name__, "said": status, "body": plain(getattr(error, "body", None))}
        print(json.dumps({"kind": kind, "way": way, "want": want, "as_wanted": status == want, "got": got},
                         sort_keys=True), flush=True)


if __name__ == "__main__":
    main()
