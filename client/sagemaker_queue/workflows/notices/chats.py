"""Messages of notices for chats, in which user input stays plain text: no mention, link, image or markup.

A job's name and reason may be the input of another user. Each kind of chat has its own markup, so the message depends
on the kind of chat. For an unknown kind, the markup of all kinds is neutralised.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from sagemaker_queue.jobs.formatting import clean, cut

LONGEST = 3000  # characters of a notice
_LONGEST_IN_DISCORD = 600  # Discord's limit is 2,000, and escaping makes a letter up to three characters long
_BREAK = "\u200b"  # a zero-width space, which interrupts markup without changing the visible text
# A break is inserted after characters that begin a mention, channel, address, emoji, or a markdown link or image.
_MARKUP_STARTS = re.compile(r"[@#]|~(?=\w)|(?<=[A-Za-z]):(?=\S)|www(?=\.)|\](?=[(\[:])|!(?=\[)|<(?=\S)", re.IGNORECASE)
# Some chats turn a domain without a scheme into a link: a break is inserted before its last part.
_DOMAIN = re.compile(r"(?<=\w)[.\u3002\uff0e\uff61](?=[^\W\d_]{2,}(?![\w]))")
_MARKUP = re.compile(r"([\\`*_{}\[\]()#+\-.!|<>~])")  # characters of markdown
_FORMATS = re.compile("[\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")  # invisible; some reverse text

Body = Mapping[str, Any]


def message_for(address: str) -> tuple[str, Callable[[str], Body]]:
    """Return the address to post to, and the function that makes a message's body from the text of a notice."""
    parts = urlsplit(address)
    host = (parts.hostname or "").lower()
    for known, make in _KINDS.items():
        if host == known or host.endswith(f".{known}"):
            if make is _discord:
                # At /slack and /github, Discord accepts formats that cannot disable mentions. So remove this part.
                address = parts._replace(path=re.sub("/(slack|github)/?$", "", parts.path)).geturl()
            return address, make
    return address, _unknown


def _slack(text: str) -> Body:
    escaped = _neutralised(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return {"text": escaped, "mrkdwn": False, "link_names": False, "unfurl_links": False, "unfurl_media": False}


def _discord(text: str) -> Body:
    suppress_embeds = 1 << 2
    return {
        "content": _escaped(text),
        "allowed_mentions": {"parse": []},
        "flags": suppress_embeds,
        "tts": False,
    }


def _teams(text: str) -> Body:
    # A TextRun has no markup, unlike a TextBlock.
    run = {"type": "TextRun", "text": _neutralised(text)}
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": [{"type": "RichTextBlock", "inlines": [run]}],
    }
    content_type = "application/vnd.microsoft.card.adaptive"
    return {"type": "message", "attachments": [{"contentType": content_type, "content": card}]}


def _google(text: str) -> Body:
    return {"text": _neutralised(text)}  # Google Chat refuses unknown members


def _unknown(text: str) -> Body:
    """Return a message for Mattermost, Rocket.Chat and others: Slack's format, with Slack's and markdown's escapes."""
    escaped = _neutralised(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return {"text": re.sub(r"([\\`*_~|])", r"\\\1", escaped)}


_KINDS: Mapping[str, Callable[[str], Body]] = {
    "hooks.slack.com": _slack,
    "hooks.slack-gov.com": _slack,
    "discord.com": _discord,
    "discordapp.com": _discord,
    "webhook.office.com": _teams,
    "webhook.office365.com": _teams,
    "logic.azure.com": _teams,
    "api.powerplatform.com": _teams,
    "chat.googleapis.com": _google,
}


def _escaped(text: str) -> str:
    """Escape every character that has a meaning in markdown."""
    return _MARKUP.sub(r"\\\1", _neutralised(text, _LONGEST_IN_DISCORD))


def _neutralised(text: str, longest: int = LONGEST) -> str:
    """Return the text as one line of at most ``longest`` characters, with mentions, links and images interrupted."""
    line = str(cut(_FORMATS.sub("", str(clean(text))), longest))
    return _DOMAIN.sub(rf"\g<0>{_BREAK}", _MARKUP_STARTS.sub(rf"\g<0>{_BREAK}", line))
