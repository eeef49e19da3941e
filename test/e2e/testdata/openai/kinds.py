"""Asks one server all kinds of request that a user of the OpenAI client makes, and prints a line of JSON for each:

    {"kind": "chat", "way": "streamed", "want": "ok", "got": {...}}

"want" is what a vLLM does: "ok", the status of an error, or the name of the client's exception; alternatives stand
between slashes. "got" is all that the client was given, without what differs between two equal requests: identifiers,
times, and what a cache held. Two servers that serve one model alike print equal lines. Everything is asked with
temperature 0 or with a seed. A line with "refused" is of a request that Signalbox refuses in its own words.
"""

import argparse
import asyncio
import gzip
import http.client
import json
import re
import urllib.parse

import openai

USER = [{"role": "user", "content": "What is the capital of France?"}]
SYSTEM = {"role": "system", "content": "You are a helpful assistant."}
TURNS = [
    SYSTEM,
    {"role": "user", "content": "Tell me a short story."},
    {"role": "assistant", "content": "A queue grew faster than it drained."},
    {"role": "user", "content": "Go on."},
]
WORDS = "The router sends each request to the replica that has the longest cached prefix. "
SCHEMA = {
    "type": "object",
    "properties": {"colour": {"enum": ["red", "green"]}, "on": {"type": "boolean"}},
    "required": ["colour", "on"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "set_signal", "description": "Sets a signal.", "parameters": SCHEMA}}
NAMED = {"type": "function", "function": {"name": "set_signal"}}

# What differs between two answers to one request, wherever it stands.
VOLATILE = {
    "created", "created_at", "completed_at", "cached_tokens", "created_cache_tokens", "cache_write_tokens",
    "cache_read_input_tokens", "cache_creation_input_tokens", "server_load", "sequence_number",
}
IDENTIFIERS = {"id", "item_id", "tool_call_id", "call_id", "response_id"}
# Headers of one hop, or that a proxy adds. A body that Signalbox is shown comes in chunks, without a length.
OWN_HEADERS = re.compile(
    r"date|connection|keep-alive|transfer-encoding|content-length|x-envoy-.*|x-signalbox-.*|x-request-id")


def plain(value):
    """Turns what the client returns into JSON values, without what is volatile."""
    if hasattr(value, "model_dump"):
        value = value.model_dump(mode="json", warnings=False)
    if isinstance(value, dict):
        kept = {k: plain(v) for k, v in value.items() if k not in VOLATILE}
        for k in IDENTIFIERS & kept.keys():
            if isinstance(kept[k], str):
                kept[k] = re.sub(r"[-_0-9a-f]{8,}.*", "…", kept[k])
        return kept
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, float):
        return round(value, 2)
    return value


def failure(error):
    """Tells an exception of the client: its class, and what the server said."""
    told = {"exception": type(error).__name__}
    if isinstance(error, openai.APIStatusError):
        told["status"] = error.status_code
        told["body"] = plain(error.body)
    elif not isinstance(error, openai.OpenAIError):
        told["text"] = str(error)  # what this program did not expect
    return told


class Stream:
    """Joins the chunks of an answer, so that it does not matter how the tokens were cut into chunks."""

    def __init__(self):
        self.choices, self.usage, self.heads = {}, None, {}
        self.counted, self.chunks = 0, 0

    def add(self, chunk):
        self.chunks += 1
        chunk = plain(chunk)
        if chunk.get("usage"):
            self.usage = chunk["usage"]
            self.counted += 1
        for key, value in chunk.items():
            if key not in ("choices", "usage", "prompt_token_ids") and value is not None:
                seen = self.heads.setdefault(key, [])
                if value not in seen:
                    seen.append(value)
        for choice in chunk.get("choices") or []:
            joined = self.choices.setdefault(str(choice["index"]), {})
            self.join(joined, choice.get("delta") or {"text": choice.get("text")})
            self.join(joined, {k: choice.get(k) for k in ("finish_reason", "stop_reason")})
            if choice.get("logprobs"):
                self.join(joined, {"logprobs": choice["logprobs"]})

    def join(self, into, part):
        for key, value in part.items():
            if isinstance(value, dict):
                self.join(into.setdefault(key, {}), value)
            elif isinstance(value, list) and value and isinstance(value[0], dict) and "function" in value[0]:
                for call in value:
                    self.join(into.setdefault(key, {}).setdefault(str(call["index"]), {}), call["function"])
            elif isinstance(value, (str, list)) and key != "role":
                into[key] = into.get(key, type(value)()) + value
            elif value is not None:
                into[key] = value

    def told(self):
        every = "every chunk" if self.counted == self.chunks else "once" if self.counted == 1 else self.counted
        return {"choices": self.choices, "usage": self.usage, "usage told": every, "heads": self.heads}


def joined(stream):
    answer = Stream()
    for chunk in stream:
        answer.add(chunk)
    return answer.told()


def events(stream):
    """Tells a stream of typed events: which, in their order, and the text of their deltas."""
    names, text, last = [], "", None
    for event in stream:
        if not names or names[-1] != event.type:
            names.append(event.type)
        if isinstance(getattr(event, "delta", None), str):
            text += event.delta
        last = event
    return {"events": names, "text": text, "last": plain(last)}


class Raw:
    """Sends a request as it is, without the OpenAI client."""

    def __init__(self, base):
        self.base = urllib.parse.urlsplit(base)

    def __call__(self, method, path, body=None, headers=None, chunked=False):
        link = http.client.HTTPConnection(self.base.hostname, self.base.port, timeout=60)
        if isinstance(body, (dict, list)):
            body = json.dumps(body).encode()
        head = {"content-type": "application/json", **(headers or {})}
        if chunked:
            body = iter([body[:20], body[20:]])
        link.request(method, path, body=body, headers=head, encode_chunked=chunked)
        response = link.getresponse()
        data = response.read()
        names = sorted({name.lower() for name, _ in response.getheaders() if not OWN_HEADERS.fullmatch(name.lower())})
        link.close()
        return {
            "status": response.status, "headers": names, "content-type": response.getheader("content-type"),
            "allow": response.getheader("allow"), "location": self.relative(response.getheader("location")),
            "body": self.body(data, response.getheader("content-type") or ""),
        }

    def relative(self, location):
        return location and urllib.parse.urlsplit(location).path

    def body(self, data, kind):
        text = data.decode("utf-8", "replace")
        if kind.startswith("application/json") and text:
            return plain(json.loads(text))
        if kind.startswith("text/event-stream"):
            lines = [line for line in text.splitlines() if line]
            return {"lines begin": sorted({line.split(":")[0] for line in lines}), "last": lines[-1]}
        if kind.startswith("text/plain; version"):
            return {"series": "vllm:num_requests_running" in text}
        return text


class Kinds:
    """The list of all kinds. A kind is a name, a way, what is wanted, whether simulated servers know it, and a call."""

    # Bodies that are no JSON object: Signalbox does not ask a model server, but says so itself.
    refused = {"body cut", "body a list", "body a word"}

    def __init__(self, model):
        self.model, self.all = model, []

    def add(self, name, call, way="whole", want="ok", sim=False):
        self.all.append((name, way, want, sim, call))

    def chat(self, name, want="ok", sim=False, ways="whole streamed", **params):
        params = {"model": self.model, "messages": USER, "max_tokens": 12, "temperature": 0, **params}
        params = {k: v for k, v in params.items() if v is not None}
        for way in ways.split():
            if way == "whole":
                self.add(name, lambda c, p=params: plain(c.chat.completions.create(**p)), way, want, sim)
            else:
                self.add(name, lambda c, p=params: joined(c.chat.completions.create(stream=True, **p)), way, want, sim)

    def completion(self, name, want="ok", sim=False, ways="whole streamed", **params):
        params = {"model": self.model, "prompt": WORDS, "max_tokens": 12, "temperature": 0, **params}
        for way in ways.split():
            if way == "whole":
                self.add(name, lambda c, p=params: plain(c.completions.create(**p)), way, want, sim)
            else:
                self.add(name, lambda c, p=params: joined(c.completions.create(stream=True, **p)), way, want, sim)

    def raw(self, name, method, path, body=None, want="200", sim=False, **more):
        self.add(name, lambda raw: raw(method, path, body, **more), "raw", want, sim)


def chats(k):
    k.chat("chat", sim=True)
    k.chat("chat, several turns", sim=True, messages=TURNS)
    k.chat("chat, content in parts", sim=True, messages=[
        {"role": "user", "content": [{"type": "text", "text": "One, "}, {"type": "text", "text": "two."}]}])
    k.chat("chat, unicode", sim=True, messages=[{"role": "user", "content": "Grüße, 世界 🌍! \u0000 \u2028 שלום"}])
    k.chat("chat, long prompt", sim=True, messages=[{"role": "user", "content": WORDS * 60}])
    k.chat("chat, max_completion_tokens", sim=True, max_tokens=None, max_completion_tokens=7)
    k.chat("chat, n=3", sim=True, n=3, temperature=0.8, seed=7)
    k.chat("chat, seed", temperature=1, seed=42)
    k.chat("chat, stop", stop=["a", "e"])
    k.chat("chat, logprobs", logprobs=True)
    k.chat("chat, top_logprobs", logprobs=True, top_logprobs=3)
    k.chat("chat, penalties, bias", frequency_penalty=0.5, presence_penalty=0.5, logit_bias={"50": 5})
    k.chat("chat, echo by extra_body", extra_body={"echo": True, "add_generation_prompt": False})
    k.chat("chat, extra_body", sim=True, extra_body={
        "min_tokens": 3, "ignore_eos": True, "top_k": 5, "repetition_penalty": 1.1, "skip_special_tokens": False})
    k.chat("chat, token ids", extra_body={"return_token_ids": True})
    k.chat("chat, unknown parameter", sim=True, extra_body={"not_a_parameter": 1})
    k.chat("chat, user, metadata, store", sim=True, user="u-1", metadata={"a": "b"}, store=False)
    k.chat("chat, priority", sim=True, extra_body={"priority": 0})
    k.chat("chat, cache_salt", sim=True, extra_body={"cache_salt": "ours"})
    # Its text does not stay: vLLM prefers the header x-request-id, which Envoy always sends.
    k.chat("chat, request_id", extra_body={"request_id": "0123456789abcdef"})
    k.chat("chat, headers", sim=True, extra_headers={"x-session-id": "s-1", "authorization": "Bearer abc"})
    k.chat("chat, query", sim=True, extra_query={"api-version": "2026-01-01"})
    k.chat("chat, include_usage", sim=True, ways="streamed", stream_options={"include_usage": True})
    k.chat("chat, continuous usage", sim=True, ways="streamed",
           stream_options={"include_usage": True, "continuous_usage_stats": True})
    k.chat("chat, json_object", max_tokens=24, response_format={"type": "json_object"})
    k.chat("chat, json_schema", max_tokens=64, response_format={
        "type": "json_schema", "json_schema": {"name": "signal", "schema": SCHEMA, "strict": True}})
    k.chat("chat, regex", max_tokens=24, extra_body={"structured_outputs": {"regex": "(red|green) light"}})
    k.chat("chat, tool by name", want="ok/400", max_tokens=64, tools=[TOOL], tool_choice=NAMED)
    k.chat("chat, tool required", want="ok/400", max_tokens=64, tools=[TOOL], tool_choice="required")
    k.chat("chat, tools, none chosen", tools=[TOOL], tool_choice="none")
    k.chat("chat, tools, auto", want="ok/400", tools=[TOOL])
    k.chat("chat, empty messages", want="400", messages=[])
    k.chat("chat, role unknown", messages=[{"role": "signalman", "content": "Hello"}])
    k.chat("chat, image", want="400", messages=[{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]}])
    k.chat("chat, wrong type", want="400", sim=True, max_tokens="many")
    k.chat("chat, temperature -1", want="400", temperature=-1)
    k.chat("chat, n=0", want="400", sim=True, n=0)
    k.chat("chat, too long", want="400", messages=[{"role": "user", "content": WORDS * 400}])
    k.chat("chat, max_tokens too large", want="400", max_tokens=100_000)
    k.chat("chat, unknown model", want="404", sim=True, model="no-such-model")
    k.chat("chat, model empty", sim=True, model="")


def completions(k):
    k.completion("completion", sim=True)
    k.completion("completion, several prompts", sim=True, prompt=["One", "Two", "Three"])
    k.completion("completion, token ids", sim=True, prompt=[5, 6, 7, 8])
    k.completion("completion, several of token ids", sim=True, prompt=[[5, 6, 7], [8, 9]])
    k.completion("completion, echo", prompt="One, two", echo=True)
    k.completion("completion, logprobs", logprobs=2)
    k.completion("completion, echo and logprobs", prompt="One, two", echo=True, logprobs=1, ways="whole")
    k.completion("completion, n=2, seed", sim=True, n=2, temperature=1, seed=3)
    k.completion("completion, stop", stop="a")
    k.completion("completion, include_usage", sim=True, ways="streamed", stream_options={"include_usage": True})
    k.completion("completion, suffix", want="400", suffix="end")
    k.completion("completion, empty prompt", want="400", prompt="")
    k.completion("completion, prompt a number", want="400", prompt=7)
    k.completion("completion, unknown model", want="404", sim=True, model="no-such-model")


def helpers(k):
    """Other ways of the client, and other parts of the API."""
    ask = {"model": k.model, "messages": USER, "max_tokens": 8, "temperature": 0}

    def raw_response(c):
        r = c.chat.completions.with_raw_response.create(**ask)
        return {"status": r.status_code, "type": r.headers["content-type"], "answer": plain(r.parse())}

    def raw_stream(c):
        with c.chat.completions.with_streaming_response.create(stream=True, **ask) as r:
            lines = [line for line in r.iter_lines() if line]
        return {"status": r.status_code, "type": r.headers["content-type"], "last": lines[-1],
                "first": plain(json.loads(lines[0].removeprefix("data: ")))}

    def parsed(c):
        import pydantic

        class Signal(pydantic.BaseModel):
            colour: str
            on: bool

        r = c.chat.completions.parse(**{**ask, "max_tokens": 64}, response_format=Signal)
        return {"finish": r.choices[0].finish_reason, "text": r.choices[0].message.content}

    def helper(c):
        with c.chat.completions.stream(**ask) as stream:
            names = sorted({event.type for event in stream})
            return {"events": names, "final": plain(stream.current_completion_snapshot)}

    def left(c):
        stream = c.chat.completions.create(**{**ask, "max_tokens": 2000}, stream=True, extra_body={"ignore_eos": True})
        seen = 0
        for _ in stream:
            seen += 1
            if seen == 3:
                break
        stream.close()
        return {"chunks": seen}

    def impatient(c):
        c.with_options(timeout=0.1).chat.completions.create(
            **{**ask, "max_tokens": 3500}, extra_body={"ignore_eos": True})

    def own_id(c):
        r = c.chat.completions.create(**ask, extra_headers={"x-request-id": "my-own-id-1"})
        return {"id": r.id}

    def page(c):
        return sorted(m.id for m in c.models.list())

    k.add("with_raw_response", raw_response, sim=True)
    k.add("with_streaming_response", raw_stream, "streamed", sim=True)
    k.add("chat.completions.parse", parsed, want="ok/LengthFinishReasonError")
    k.add("chat.completions.stream", helper, "streamed", sim=True)
    k.add("client leaves a stream", left, "streamed", sim=True)
    k.add("client's timeout", impatient, want="APITimeoutError", sim=True)
    k.add("x-request-id", own_id, sim=True)
    k.add("models.list", page, sim=True)
    k.add("models.retrieve", lambda c: plain(c.models.retrieve(k.model)), want="404", sim=True)
    k.add("models.delete", lambda c: plain(c.models.delete("x")), want="404", sim=True)
    k.add("embeddings", lambda c: plain(c.embeddings.create(model=k.model, input="One")), want="404", sim=True)
    k.add("moderations", lambda c: plain(c.moderations.create(model=k.model, input="One")), want="404", sim=True)
    k.add("images", lambda c: plain(c.images.generate(model=k.model, prompt="One")), want="404", sim=True)
    k.add("audio.speech", lambda c: c.audio.speech.create(model=k.model, voice="alloy", input="One").content,
          want="404", sim=True)
    k.add("audio.transcriptions", lambda c: plain(c.audio.transcriptions.create(
        model=k.model, file=("a.wav", b"RIFF" + bytes(2000), "audio/wav"))), want="404", sim=True)
    k.add("files", lambda c: plain(c.files.list()), want="404", sim=True)
    k.add("batches", lambda c: plain(c.batches.list()), want="404", sim=True)


def responses(k):
    ask = {"model": k.model, "input": "Tell me a short story.", "max_output_tokens": 12, "temperature": 0}
    for name, want, more in (
        ("responses", "ok", {}),
        ("responses, instructions", "ok", {"instructions": "Answer in one sentence."}),
        ("responses, several turns", "ok", {"input": TURNS[1:]}),
        ("responses, json_schema", "ok", {"max_output_tokens": 64, "text": {
            "format": {"type": "json_schema", "name": "signal", "schema": SCHEMA, "strict": True}}}),
        ("responses, unknown model", "404", {"model": "no-such-model"}),
        ("responses, wrong type", "400", {"max_output_tokens": "many"}),
    ):
        params = {**ask, **more}
        k.add(name, lambda c, p=params: plain(c.responses.create(**p)), "whole", want)
        k.add(name, lambda c, p=params: events(c.responses.create(stream=True, **p)), "streamed", want)
    k.add("responses.retrieve", lambda c: plain(c.responses.retrieve("resp_0")), want="404")


def raws(k):
    ask = {"model": k.model, "messages": USER, "max_tokens": 8, "temperature": 0}
    body, chat = json.dumps(ask).encode(), "/v1/chat/completions"
    message = {"model": k.model, "max_tokens": 8, "temperature": 0, "messages": USER}
    k.raw("/v1/messages", "POST", "/v1/messages", message)
    k.raw("/v1/messages, system", "POST", "/v1/messages", {**message, "system": "Be short."})
    k.raw("/v1/messages, streamed", "POST", "/v1/messages", {**message, "stream": True})
    k.raw("/v1/messages, wrong", "POST", "/v1/messages", {"model": k.model}, want="400")
    k.raw("/v1/messages/count_tokens", "POST", "/v1/messages/count_tokens", {"model": k.model, "messages": USER})
    k.raw("/tokenize", "POST", "/tokenize", {"model": k.model, "prompt": "Hello"}, sim=True)
    k.raw("/tokenize, chat", "POST", "/tokenize", {"model": k.model, "messages": USER}, sim=True)
    k.raw("/detokenize", "POST", "/detokenize", {"model": k.model, "tokens": [5, 6, 7]})
    for path in ("/health", "/ping", "/version", "/v1/models", "/load", "/metrics"):
        k.raw("GET " + path, "GET", path, sim=True)
    k.raw("GET /", "GET", "/", want="404", sim=True)
    k.raw("GET /v1/models?a=b", "GET", "/v1/models?a=b", sim=True)
    k.raw("GET /v1/models/", "GET", "/v1/models/", want="307", sim=True)
    k.raw("GET " + chat, "GET", chat, want="405", sim=True)
    k.raw("HEAD /v1/models", "HEAD", "/v1/models", want="405", sim=True)
    k.raw("OPTIONS " + chat, "OPTIONS", chat, want="405", sim=True)
    k.raw("OPTIONS, preflight", "OPTIONS", chat, want="200/400", headers={
        "origin": "http://example.org", "access-control-request-method": "POST"})
    k.raw("DELETE " + chat, "DELETE", chat, want="405", sim=True)
    k.raw("PUT " + chat, "PUT", chat, ask, want="405", sim=True)
    k.raw("unknown path", "POST", "/v1/no/such/path", ask, want="404", sim=True)
    k.raw("chunked body", "POST", chat, body, sim=True, chunked=True)
    k.raw("body with gzip", "POST", chat, gzip.compress(body), want="400", headers={"content-encoding": "gzip"})
    k.raw("body with a BOM", "POST", chat, b"\xef\xbb\xbf" + body)
    k.raw("body in UTF-16", "POST", chat, json.dumps(ask).encode("utf-16"))
    k.raw("body with spaces", "POST", chat, json.dumps(ask, indent=4).encode() + b"\n\n", sim=True)
    k.raw("body empty", "POST", chat, b"", want="400")
    k.raw("body cut", "POST", chat, body[:-9], want="400")
    k.raw("body a list", "POST", chat, [ask], want="400")
    k.raw("body a word", "POST", chat, b"word", want="400")
    k.raw("content-type text/plain", "POST", chat, body, want="400", headers={"content-type": "text/plain"})
    k.raw("content-type with charset", "POST", chat, body, sim=True,
          headers={"content-type": "application/json; charset=utf-8"})
    k.raw("expect 100-continue", "POST", chat, body, sim=True, headers={"expect": "100-continue"})
    k.raw("accept-encoding gzip", "POST", chat, body, sim=True, headers={"accept-encoding": "gzip"})
    k.raw("header with an underscore", "POST", chat, body, sim=True, headers={"session_id": "s-1"})
    k.raw("header of 8 KiB", "POST", chat, body, sim=True, headers={"x-long": "x" * 8192})
    k.raw("path in capitals", "POST", "/V1/Chat/Completions", ask, want="404", sim=True)
    k.raw("path with %", "GET", "/v1/%6dodels", sim=True)
    k.raw("path with //", "GET", "//v1/models", want="404", sim=True)
    k.raw("path with ..", "GET", "/v1/x/../models", want="404", sim=True)


def matches(want, got):
    """Reports whether an answer is one of those that are wanted."""
    wanted = want.split("/")
    if "exception" in got:
        return got["exception"] in wanted or str(got.get("status")) in wanted
    return "ok" in wanted or str(got.get("status", "ok")) in wanted


def tell(name, way, want, got):
    line = {"kind": name, "way": way, "want": want, "as_wanted": matches(want, got), "got": got}
    if name in Kinds.refused:
        line["refused"] = True
    print(json.dumps(line, sort_keys=True), flush=True)


async def at_once(base, model, count):
    """Asks count questions at once, every second one streamed, and gives the answers in their order."""
    async def one(client, n):
        ask = {
            # The answer repeats the question, so that no two are alike. No seeds: vLLM 0.32.0 on CPUs dies of one whose
            # prompt is computed in two steps ("CPU Generator does not use offset").
            "model": model, "max_tokens": 16, "temperature": 0,
            "extra_body": {"echo": True, "add_generation_prompt": False},
            "messages": [SYSTEM, {"role": "user", "content": f"Question {n}: {WORDS}"}],
        }
        try:
            if n % 2:
                answer = Stream()
                async for chunk in await client.chat.completions.create(stream=True, **ask):
                    answer.add(chunk)
                return answer.told()
            return plain(await client.chat.completions.create(**ask))
        except openai.OpenAIError as error:
            return failure(error)

    async with openai.AsyncOpenAI(base_url=base + "/v1", api_key="none", max_retries=0, timeout=120) as client:
        return await asyncio.gather(*(one(client, n) for n in range(count)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", required=True, help="the server, such as http://127.0.0.1:8000")
    parser.add_argument("--model", required=True)
    parser.add_argument("--simulated", action="store_true", help="only what simulated servers know")
    parser.add_argument("--at-once", type=int, default=200, help="so many questions at once, last")
    given = parser.parse_args()
    kinds = Kinds(given.model)
    for family in (chats, completions, helpers, responses, raws):
        family(kinds)
    client = openai.OpenAI(base_url=given.base + "/v1", api_key="none", max_retries=0, timeout=60)
    raw = Raw(given.base)
    for name, way, want, simulated, call in kinds.all:
        if given.simulated and not simulated:
            continue
        try:
            got = call(raw if way == "raw" else client)
            if not isinstance(got, dict):
                got = {"value": got}
        except Exception as error:  # whatever the client raises is its user's answer
            got = failure(error)
        tell(name, way, want, got)
    for n, got in enumerate(asyncio.run(at_once(given.base, given.model, given.at_once))):
        tell(f"at once, {n + 1}", "streamed" if n % 2 else "whole", "ok", got)


if __name__ == "__main__":
    main()
