//! Decides whether client sessions may share a process of a legacy stdio server.
//!
//! MCP does not tell whether a server keeps state for a session. So sharing needs evidence of the
//! contrary: the server has nothing to do with sessions, and all its tools declare that they change
//! nothing. In doubt, each session gets its own process.

use std::sync::Arc;

use fanlight_canonical::{BackendError, CallContext};
use fanlight_protocol::annotations::is_read_only;
use fanlight_protocol::{Json, Method, ObjectBuilder, ServerDescription};

use super::SessionPool;
use crate::connection::Connection;
use crate::connection::supervised::Phase;
use crate::log::excerpt;
use crate::request::declared::Declared;
use crate::settings::{SessionPolicy, list_bytes, list_pages};

/// Capabilities that do not depend on a session.
const STATELESS: [&str; 4] = ["tools", "prompts", "resources", "completions"];
/// The number of characters of a server's text in a reason.
const SHOWN: usize = 60;

/// Whether sessions may share a process; the error is the reason against it.
pub(super) type Verdict = Result<(), Arc<str>>;

impl SessionPool {
    /// Determines the verdict, unless that was done on this connection.
    pub(super) async fn verdict(&self, base: &Arc<Connection>) -> Verdict {
        if let Some(verdict) = self.sharing.find(Some(base)) {
            return verdict;
        }
        let verdict = judge(base).await.map_err(Arc::from);
        self.sharing.record(base, verdict.clone());
        verdict
    }

    /// Whether a client with a session may share a process with others of its principal, provided
    /// that the server has no state.
    pub(super) fn may_share_process(&self, client: &CallContext, has_sessions: bool) -> bool {
        self.policy == SessionPolicy::Auto
            && has_sessions
            && client.session().is_some()
            && self.settings.process().is_some()
            && !Declared::lets_ask(client)
    }

    /// Whether a client with a session shares a process with others of its principal. False until
    /// the verdict is known.
    pub(super) fn shares_process(&self, client: &CallContext) -> bool {
        if self.policy != SessionPolicy::Auto || self.settings.process().is_none() {
            return false;
        }
        let (base, has_sessions) = {
            let state = self.base.state.borrow();
            let base = if let Phase::Ready(base) = &state.phase {
                Some(Arc::clone(base))
            } else {
                None
            };
            let revision = state.revision;
            (base, revision.is_none_or(|revision| revision.has_sessions))
        };
        self.may_share_process(client, has_sessions)
            && self
                .sharing
                .find(base.as_ref())
                .is_some_and(|verdict| verdict.is_ok())
    }

    /// How client sessions are served, and the reason if Fanlight chooses.
    pub(crate) async fn session_choice(&self) -> Result<Option<String>, BackendError> {
        if self.policy != SessionPolicy::Auto || self.settings.process().is_none() {
            return Ok(None);
        }
        let base = self.base.ready(self.settings.timeouts.connect).await?;
        if !base.revision().has_sessions {
            return Ok(None);
        }
        Ok(Some(match self.verdict(&base).await {
            Ok(()) => {
                "clients that cannot be asked share a process: it has nothing to do with sessions, and its tools are \
                       read-only"
                    .to_owned()
            }
            Err(why) => {
                let hint = if self.base.has_asked() {
""
} else {
"; if it never asks a client and keeps nothing for one, `session: shared` saves processes"
};
                format!("each client session has a process of its own: {why}{hint}")
            }
        }))
    }
}

async fn judge(connection: &Connection) -> Result<(), String> {
    judge_description(&connection.description())?;
    if connection
        .description()
        .capabilities()
        .is_none_or(|all| all.get("tools").is_none())
    {
        return Ok(());
    }
    let (mut cursor, mut left): (Option<Json>, _) = (None, list_bytes());
    for _ in 0..list_pages() {
        let params = cursor
            .as_ref()
            .map(|cursor| ObjectBuilder::new().member("cursor", cursor).finish());
        let page = connection
            .ask(&Method::ListTools, params.as_ref())
            .await
            .and_then(|answer| answer.result());
        let page = page.ok_or("its tools could not be listed")?;
        left = left
            .checked_sub(page.bytes().len())
            .ok_or("its list of tools is too long to be judged")?;
        judge_tools(&page)?;
        match page.get("nextCursor").filter(|next| !next.is_null()) {
            None => return Ok(()),
            next => cursor = next,
        }
    }
    Err("its list of tools has too many pages to be judged".to_owned())
}

fn judge_description(description: &ServerDescription) -> Result<(), String> {
    let Some(all) = description.capabilities() else {
        return Ok(());
    };
    for member in all.members() {
        let name = member.name(&all).unwrap_or_default();
        if !STATELESS.contains(&&*name) {
            return Err(format!(
                "it has the capability {:?}, which belongs to a session",
                excerpt(name.as_bytes(), SHOWN)
            ));
        }
        let value = all.slice(member.value.clone());
        for option in ["subscribe", "listChanged"] {
            if value.flag(option) {
                return Err(format!(
                    "it declares `{name}.{option}`, which may differ between sessions"
                ));
            }
        }
    }
    Ok(())
}

fn judge_tools(page: &Json) -> Result<(), String> {
    let Some(tools) = page.get("tools") else {
        return Ok(());
    };
    for element in tools.elements() {
        let tool = tools.slice(element);
        if !tool
            .get("annotations")
            .is_some_and(|annotations| is_read_only(&annotations))
        {
            let name = tool
                .text_at("name")
                .map(|name| excerpt(name.as_bytes(), SHOWN));
            return Err(format!(
                "its tool {:?} does not say that it is read-only",
                name.unwrap_or_default()
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(capabilities: &str) -> String {
        let text = format!(r#"{{"capabilities":{capabilities}}}"#);
        judge_description(&Json::parse(text.into(), 16).unwrap().into())
            .err()
            .unwrap_or_default()
    }

    #[test]
    fn session_bound_capabilities_keep_sessions_apart() {
        assert_eq!(
            reason(
                r#"{"tools":{},"prompts":{"listChanged":false},"resources":{},"completions":{}}"#
            ),
            ""
        );
        assert_eq!(reason("{}"), "");
        for (capabilities, why) in [
            (r#"{"tools":{},"logging":{}}"#, "logging"),
            (r#"{"tasks":{}}"#, "tasks"),
            (r#"{"experimental":{"x":{}}}"#, "experimental"),
            (r#"{"extensions":{}}"#, "extensions"),
            (r#"{"resources":{"subscribe":true}}"#, "resources.subscribe"),
            (r#"{"tools":{"listChanged":true}}"#, "tools.listChanged"),
        ] {
            assert!(reason(capabilities).contains(why), "{capabilities}");
        }
    }

    #[test]
    fn tools_that_may_change_something_keep_sessions_apart() {
        let judged = |tools: &str| {
            judge_tools(&Json::parse(format!(r#"{{"tools":[{tools}]}}"#).into(), 16).unwrap())
        };
        let read = r#"{"name":"r","annotations":{"readOnlyHint":true}}"#;
        assert!(judged("").is_ok() && judged(read).is_ok());
        for other in [
            r#"{"name":"w"}"#,
            r#"{"name":"w","annotations":{}}"#,
            r#"{"name":"w","annotations":{"readOnlyHint":false}}"#,
            r#"{"name":"w","annotations":{"readOnlyHint":"true"}}"#,
            r#"{"name":"w","annotations":{"idempotentHint":true}}"#,
            r#"{"name":"w\u001b[2J","readOnlyHint":true}"#,
            "{}",
        ] {
            let why = judged(&format!("{read},{other}")).unwrap_err();
            assert!(
                why.contains("read-only") && !why.contains('\u{1b}'),
                "{why}"
            );
        }
    }
}
