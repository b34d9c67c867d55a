"""Deliveries of GitHub about an issue, with all the fields that theirs have; the values are ours."""

from __future__ import annotations

import json
from typing import Any

API = "https://api.github.com"
WEB = "https://github.com"


def user(login: str, number: int, kind: str = "User") -> dict[str, Any]:
    """An account."""
    base = f"{API}/users/{login}"
    links = ("followers", "subscriptions", "repos", "received_events")
    return {
        "login": login,
        "id": number,
        "node_id": f"MDQ6VXNlc{number}",
        "avatar_url": f"https://avatars.githubusercontent.com/u/{number}?v=4",
        "gravatar_id": "",
        "url": base,
        "html_url": f"{WEB}/{login}",
        **{f"{link}_url": f"{base}/{link}" for link in links},
        "following_url": f"{base}/following{{/other_user}}",
        "gists_url": f"{base}/gists{{/gist_id}}",
        "starred_url": f"{base}/starred{{/owner}}{{/repo}}",
        "organizations_url": f"{base}/orgs",
        "events_url": f"{base}/events{{/privacy}}",
        "type": kind,
        "user_view_type": "public",
        "site_admin": False,
    }


def repository(full_name: str) -> dict[str, Any]:
    """Where the issue is."""
    owner, _, name = full_name.partition("/")
    return {
        "id": 702_114_905,
        "node_id": "R_kgDOKdlv2Q",
        "name": name,
        "full_name": full_name,
        "private": False,
        "owner": user(owner, 77_001, "Organization"),
        "html_url": f"{WEB}/{full_name}",
        "description": None,
        "fork": False,
        "url": f"{API}/repos/{full_name}",
        "created_at": "2026-01-05T09:00:00Z",
        "updated_at": "2026-10-01T10:11:12Z",
        "pushed_at": "2026-11-01T08:00:00Z",
        "homepage": None,
        "size": 412,
        "stargazers_count": 7,
        "has_issues": True,
        "archived": False,
        "disabled": False,
        "open_issues_count": 3,
        "license": None,
        "topics": [],
        "visibility": "public",
        "default_branch": "main",
    }


def label(name: str) -> dict[str, Any]:
    """A label."""
    return {
        "id": 9_001,
        "node_id": "LA_kwDOKdlv2c8AAAAB",
        "url": f"{API}/repos/acme/shop/labels/{name}",
        "name": name,
        "color": "d73a4a",
        "default": True,
        "description": None,
    }


def issue(
    full_name: str,
    *,
    action: str = "opened",
    number: int = 12,
    at: str = "2026-11-02T08:00:00Z",
    title: str = "Paying by card fails",
    sender: str = "mona",
) -> bytes:
    """The body of a delivery, as bytes."""
    base = f"{API}/repos/{full_name}/issues/{number}"
    about: dict[str, Any] = {
        "url": base,
        "repository_url": f"{API}/repos/{full_name}",
        "labels_url": f"{base}/labels{{/name}}",
        "comments_url": f"{base}/comments",
        "events_url": f"{base}/events",
        "html_url": f"{WEB}/{full_name}/issues/{number}",
        "id": 2_511_003_000 + number,
        "node_id": "I_kwDOKdlv2c6Vqx-A",
        "number": number,
        "title": title,
        "user": user("mona", 583_231),
        "labels": [label("bug")] if action == "labeled" else [],
        "state": "open",
        "locked": False,
        "assignee": None,
        "assignees": [],
        "milestone": None,
        "comments": 0,
        "created_at": "2026-11-02T08:00:00Z",
        "updated_at": at,
        "closed_at": None,
        "author_association": "CONTRIBUTOR",
        "active_lock_reason": None,
        "body": "Since this morning every payment is declined.\r\n\r\n- [ ] looked at the logs",
        "reactions": {"url": f"{base}/reactions", "total_count": 0, "+1": 0, "-1": 0, "laugh": 0},
        "timeline_url": f"{base}/timeline",
        "performed_via_github_app": None,
        "state_reason": None,
    }
    body: dict[str, Any] = {
        "action": action,
        "issue": about,
        "repository": repository(full_name),
        "organization": {"login": "acme", "id": 77_001, "url": f"{API}/orgs/acme", "description": ""},
        "sender": user(sender, 583_231),
    }
    if action == "labeled":
        body["label"] = label("bug")
    return json.dumps(body).encode()


def ping() -> bytes:
    """What GitHub sends when a webhook is made."""
    hook = {"type": "Repository", "id": 292_430_182, "name": "web", "active": True, "events": ["issues"]}
    return json.dumps({"zen": "Keep it short.", "hook_id": 292_430_182, "hook": hook}).encode()
