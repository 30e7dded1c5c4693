"""Words in a job's reason that a chat would obey: they reach it as words."""

from __future__ import annotations

import html
import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from sagemaker_queue.workflows.notices.channels import Webhook
from sagemaker_queue.workflows.notices.watch import Notice

if TYPE_CHECKING:
    from tests.client.conftest import ScriptedServer

pytestmark = pytest.mark.attack

ADDRESSES = {
    "slack": "https://hooks.slack.com/services/T0/B0/secret",
    "discord": "https://discord.com/api/webhooks/1/secret",
    "discord as slack": "https://discordapp.com/api/webhooks/1/secret/slack?wait=true",
    "discord as github": "https://ptb.discord.com/api/webhooks/1/secret/github",
    "teams": "https://prod-01.westeurope.logic.azure.com/workflows/secret/triggers/manual/paths/invoke?sig=x",
    "teams of old": "https://contoso.webhook.office.com/webhookb2/secret",
    "google": "https://chat.googleapis.com/v1/spaces/x/messages?key=k&token=secret",
    "mattermost": "https://chat.example.com/hooks/secret",
}
MENTIONS = ["@channel", "@here", "@everyone", "@all", "@ann", "<!channel>", "<!here|here>", "<@U123>", "<@&456>"]
LINKS = [
    *("https://evil.example/x", "http://1.2.3.4", "HTTPS://EVIL.EXAMPLE", "www.evil.example", "evil.example/login"),
    *("mailto:ann@evil.example", "slack://open", "<https://evil.example|your bank>", "<http://evil.example>"),
    *("[your bank](https://evil.example)", "![x](https://evil.example/x.png)", "[a][b] [b]: https://evil.example"),
    *("~town-square", "#general", "<#C123>", "<a:x:123>", "</rm:123>", "evil。example"),
]
# How chats find what they obey, in the text that they show; more than each of them does.
OBEYED = re.compile(r"@\w|<[!@#/&a-z]|\w:/|mailto:\w|www\.|\w[.。]example|\]\(|!\[|\]\[|\]:|~\w|#\w", re.IGNORECASE)


@pytest.fixture
def sent(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Send a notice to the address of a chat; gives the body, and the path, as a server of this machine gets them."""
    import requests
    from requests.adapters import HTTPAdapter

    def to_this_machine(self: HTTPAdapter, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        place = request.path_url
        request.url = f"{server.url.removesuffix('/prod')}{place}"
        return there(self, request, **options)

    there = HTTPAdapter.send
    monkeypatch.setattr(HTTPAdapter, "send", to_this_machine)

    def send(address: str, text: str) -> tuple[Any, str]:
        server.answers(200, "ok")
        Webhook(address).send(Notice("failed", "job1", text))
        received = server.received[-1]
        return json.loads(received.body), received.path

    return send


def words_of(body: Any) -> list[str]:
    """Return all texts of a message, but for its own form."""
    if isinstance(body, dict):
        fixed = ("type", "version", "$schema", "contentType")
        return [text for name, value in body.items() if name not in fixed for text in words_of(value)]
    if isinstance(body, list):
        return [text for value in body for text in words_of(value)]
    return [body] if isinstance(body, str) else []


@pytest.mark.parametrize("order", [*MENTIONS, *LINKS])
@pytest.mark.parametrize("chat", ADDRESSES)
def test_no_order_reaches_a_chat(sent: Any, chat: str, order: str) -> None:
    body, _ = sent(ADDRESSES[chat], f"job1 failed: see {order} now.")
    (text,) = words_of(body)
    assert not OBEYED.search(text), text
    if chat in ("slack", "mattermost"):
        assert "<" not in text and ">" not in text
    # People read the same words.
    read = html.unescape(text) if chat in ("slack", "mattermost") else text
    if "discord" in chat or chat == "mattermost":
        read = re.sub(r"\\(.)", r"\1", read)
    assert read.replace("\u200b", "") == f"job1 failed: see {order} now."


@pytest.mark.parametrize("chat", ["discord", "discord as slack", "discord as github"])
def test_discord_is_told_to_mention_nobody(sent: Any, chat: str) -> None:
    body, path = sent(ADDRESSES[chat], "job1 failed: @everyone")
    assert body["allowed_mentions"] == {"parse": []}
    assert set(body) == {"content", "allowed_mentions", "flags", "tts"}
    assert body["flags"] & 4, "no previews"
    assert path.partition("?")[0] == "/api/webhooks/1/secret"


def test_slack_is_told_to_link_and_preview_nothing(sent: Any) -> None:
    body, _ = sent(ADDRESSES["slack"], "job1 failed")
    assert body == {
        "text": "job1 failed",
        "mrkdwn": False,
        "link_names": False,
        "unfurl_links": False,
        "unfurl_media": False,
    }


@pytest.mark.parametrize("chat", ["teams", "teams of old"])
def test_teams_gets_text_that_has_no_markup(sent: Any, chat: str) -> None:
    body, _ = sent(ADDRESSES[chat], "job1 failed: **x**")
    (attachment,) = body["attachments"]
    (block,) = attachment["content"]["body"]
    assert (block["type"], block["inlines"]) == ("RichTextBlock", [{"type": "TextRun", "text": "job1 failed: **x**"}])
    assert "entities" not in json.dumps(body) and "msteams" not in json.dumps(body)


@pytest.mark.parametrize("chat", ["discord", "mattermost"])
@pytest.mark.parametrize("markup", ["**x**", "__x__", "~~x~~", "||x||", "`x`", "```x```", "\\*x*", "> x", "a_b_c"])
def test_markdown_is_shown_as_it_is(sent: Any, chat: str, markup: str) -> None:
    body, _ = sent(ADDRESSES[chat], f"job1 failed: {markup}")
    (text,) = words_of(body)
    assert not re.search(r"(?<!\\)(\\\\)*[`*_~|]", html.unescape(text))
    assert re.sub(r"\\(.)", r"\1", html.unescape(text)).replace("\u200b", "") == f"job1 failed: {markup}"


@pytest.mark.parametrize("chat", ADDRESSES)
def test_no_text_is_hidden_turned_around_or_on_a_line_of_its_own(sent: Any, chat: str) -> None:
    body, _ = sent(ADDRESSES[chat], "job1 failed: a\n# b\r\n> c\u202etxt\u2066\u2028d\x1b[31m @\u200bhere")
    (text,) = words_of(body)
    assert not re.search("[\x00-\x1f\x7f\u200c-\u200f\u2028-\u202e\u2066-\u2069]", text)


@pytest.mark.parametrize("chat", ADDRESSES)
def test_a_long_reason_is_a_message_all_the_same(sent: Any, chat: str) -> None:
    body, _ = sent(ADDRESSES[chat], "job1 failed: " + "<@*_.example" * 1000)
    (text,) = words_of(body)
    assert len(text) <= (2000 if "discord" in chat else 20_000)


@pytest.mark.parametrize("host", ["discord.com.evil.example", "notdiscord.com", "evil.example"])
def test_a_name_that_resembles_a_chats_is_none(sent: Any, host: str) -> None:
    body, path = sent(f"https://{host}/api/webhooks/1/secret/slack", "job1 failed: @here")
    assert set(body) == {"text"}
    assert path == "/api/webhooks/1/secret/slack"
