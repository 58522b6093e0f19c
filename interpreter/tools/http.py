"""`tools.http`: one request. What may pass (5xx, 429, no connection) is for the retry policy; a 4xx fails at once."""

from __future__ import annotations

from typing import Any

import httpx

from durable import NonRetryable, RetryAfter, current_step

# A response is a step's value and lives in the journal; more belongs elsewhere.
MOST_BYTES = 8 * 1024 * 1024
_SAFE = frozenset(("GET", "HEAD", "OPTIONS"))
_PASSING = frozenset((408, 425, 429))


class HttpFailed(Exception):
    """The server or the way to it failed; another try may help."""


class HttpRefused(NonRetryable):
    """The server understood and said no, or the response cannot be used: another try would end the same."""


async def request(
    url: str,
    method: str = "GET",
    *,
    headers: dict[str, str] | None = None,
    params: dict[str, Any] | None = None,
    json: Any = None,
    data: Any = None,
    timeout: float = 30.0,
    follow_redirects: bool = False,
    check: bool = True,
) -> dict[str, Any]:
    """`{status, headers, body}`; the body is JSON where the server says so, else text.

    A request that changes something carries the step's idempotency key, so that a server can tell a second try. With
    `check` off every status is a result.
    """
    verb = method.upper()
    sent = httpx.Headers(headers)
    if verb not in _SAFE:
        sent.setdefault("Idempotency-Key", current_step().idempotency_key)
    body = {"content": data} if isinstance(data, str | bytes) else {"data": data}
    try:
        async with (
            httpx.AsyncClient(timeout=timeout, follow_redirects=follow_redirects) as client,
            client.stream(verb, url, headers=sent, params=params, json=json, **body) as response,
        ):
            content = await _content(response)
    except httpx.InvalidURL as exc:
        raise HttpRefused(f"{verb} {url}: {exc}") from None
    except httpx.HTTPError as exc:
        raise HttpFailed(f"{verb} {url}: {type(exc).__name__}: {exc}") from None
    if check:
        _check(verb, url, response, content)
    return {"status": response.status_code, "headers": dict(response.headers), "body": _body(response, content)}


async def get(url: str, **options: Any) -> dict[str, Any]:
    return await request(url, "GET", **options)


async def post(url: str, **options: Any) -> dict[str, Any]:
    return await request(url, "POST", **options)


async def _content(response: httpx.Response) -> bytes:
    content = bytearray()
    async for chunk in response.aiter_bytes():
        content += chunk
        if len(content) > MOST_BYTES:
            raise HttpRefused(f"{response.request.method} {response.url}: the response is over {MOST_BYTES:,} bytes")
    return bytes(content)


def _check(verb: str, url: str, response: httpx.Response, content: bytes) -> None:
    status = response.status_code
    if status < 400:
        return
    said = f"{verb} {url}: {status} {response.reason_phrase}: {_text(response, content)[:500]}".rstrip(": ")
    if status < 500 and status not in _PASSING:
        raise HttpRefused(said)
    after = response.headers.get("Retry-After", "")
    if after.isdigit():
        raise RetryAfter(float(after), said)
    raise HttpFailed(said)


def _body(response: httpx.Response, content: bytes) -> Any:
    kind = response.headers.get("Content-Type", "").partition(";")[0].strip()
    if kind == "application/json" or kind.endswith("+json"):
        try:
            return httpx.Response(200, content=content).json()
        except ValueError as exc:
            raise HttpRefused(f"{response.request.method} {response.url}: {kind} that is not JSON: {exc}") from None
    return _text(response, content)


def _text(response: httpx.Response, content: bytes) -> str:
    return content.decode(response.charset_encoding or "utf-8", "replace").replace("\x00", "\ufffd")
