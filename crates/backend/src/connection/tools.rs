//! Facts about a call's tool. The server's tool list is read if no list has been seen yet.

use std::sync::Arc;
use std::time::Duration;

use fanlight_fair::limit;
use fanlight_protocol::json::ObjectBuilder;
use fanlight_protocol::result::ListToolsResult;
use fanlight_protocol::{Json, Method, Response, RpcError, code};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use super::Connection;
use crate::request::dialect::{MirroredParam, request_subject};
use crate::settings::{list_bytes, list_pages};
use fanlight_canonical::{Call, LIST_ENTRIES, TaskDialect};

/// Coordinates the reading of tool lists for hints about repeated calls.
pub(super) struct HintReadings {
    /// Allows one reading at a time.
    turn: Semaphore,
    /// The time when the last reading began.
    last: Mutex<Option<Instant>>,
}

impl HintReadings {
    pub(super) fn new() -> Self {
        Self {
            turn: Semaphore::new(1),
            last: Mutex::default(),
        }
    }
}

/// The members of a request that its HTTP headers repeat.
pub(super) struct MirroredMembers {
    /// The value that `Mcp-Name` repeats: the tool's or prompt's name, or the resource's URI.
    pub(super) name: Option<Json>,
    /// The tool's mirrored parameters.
    pub(super) headers: Option<Arc<[MirroredParam]>>,
    /// Whether the tool's parameters are unknown until the tool list has been read.
    pub(super) is_unread: bool,
}

impl MirroredMembers {
    /// The error for a call whose arguments two JSON parsers could read differently.
    pub(super) fn refuses(&self, call: &Call) -> Option<RpcError> {
        self.headers
            .as_ref()
            .filter(|headers| !headers.is_empty())?;
        let arguments = call.params.as_ref()?.get("arguments")?;
        let why = arguments.read_strictly().err()?;
        Some(RpcError::new(
            code::INVALID_PARAMS,
            format!("params.arguments: {why}"),
        ))
    }
}

impl Connection {
    /// The members that headers repeat from a call's request, as far as known.
    pub(super) fn mirrored_members(&self, call: &Call) -> MirroredMembers {
        let name = request_subject(&call.method, call.params.as_ref());
        let table = self
            .tools
            .as_ref()
            .filter(|table| table.mirrors && call.method == Method::CallTool);
        let tool = name.as_ref().and_then(Json::as_str);
        let (headers, is_unread) = match table.zip(tool) {
            Some((table, tool)) => {
                let known = table.find(&tool);
                let is_unread = known.is_none();
                (known.map(|known| known.headers), is_unread)
            }
            None => (None, false),
        };
        MirroredMembers {
            name,
            headers,
            is_unread,
        }
    }

    /// Whether a legacy server requires that the tool is called as a task; `reread` reads the tool
    /// list again.
    pub(crate) async fn needs_task(&self, tool: &str, reread: bool) -> bool {
        if reread {
            self.reload_tools().await;
        }
        if self.tasks != Some(TaskDialect::Requested) {
            return false;
        }
        let Some(table) = &self.tools else {
            return false;
        };
        if table.find(tool).is_none() {
            self.read_tools_once().await;
        }
        table.find(tool).is_some_and(|known| known.needs_task)
    }

    /// Whether the tool list declares that calling this tool twice is harmless. A list older than
    /// `oldest` is read again, within the time limit of Fanlight's own messages. Without a list the
    /// answer is no.
    pub(crate) async fn is_repeatable(&self, tool: &str, oldest: Duration) -> bool {
        let Some(table) = &self.tools else {
            return false;
        };
        let since = Instant::now().checked_sub(oldest);
        let is_recent = |at: Instant| since.is_none_or(|since| at >= since);
        let known = || table.find(tool).filter(|known| is_recent(known.seen));
        let reading = async {
            let _turn = self.hints.turn.acquire().await;
            // Another call may just have read the list, perhaps in vain or without this tool.
            if known().is_none() && !self.hints.last.lock().is_some_and(is_recent) {
                *self.hints.last.lock() = Some(Instant::now());
                self.reload_tools().await;
            }
        };
        if known().is_none() {
            let _ = timeout(self.context.timeouts.own_message, reading).await;
        }
        known().is_some_and(|known| known.is_repeatable)
    }

    /// Reads the tool list unless that was tried before. Without it a call goes out unchanged: the
    /// server reports missing headers.
    pub(super) async fn read_tools_once(&self) {
        let reading = self.tools_loaded.get_or_try_init(|| async {
            if self.load_tools().await {
                Ok(())
            } else {
                Err(())
            }
        });
        let _ = reading.await;
    }

    pub(super) fn rejects_headers(&self, call: &Call, response: &Response) -> bool {
        self.tools.as_ref().is_some_and(|table| table.mirrors)
            && call.method == Method::CallTool
            && response.error_code() == Some(code::HEADER_MISMATCH)
    }

    pub(super) async fn reload_tools(&self) {
        if !self.load_tools().await {
            tracing::debug!(
                backend = &*self.context.name,
                "tool list could not be read again"
            );
        }
    }

    /// Reads the whole tool list; returns whether that succeeded.
    async fn load_tools(&self) -> bool {
        let Some(table) = &self.tools else {
            return false;
        };
        let (mut cursor, mut bytes_left, mut entries_left) = (
            None::<Json>,
            list_bytes(),
            limit("listEntries", LIST_ENTRIES),
        );
        for _ in 0..list_pages() {
            let params = cursor
                .as_ref()
                .map(|cursor| ObjectBuilder::new().member("cursor", cursor).finish());
            let Some(response) = self.ask(&Method::ListTools, params.as_ref()).await else {
                return false;
            };
            let entries = response
                .result()
                .and_then(|list| list.get("tools"))
                .map_or(0, |all| all.elements().count());
            let left = bytes_left
                .checked_sub(response.body().bytes().len())
                .zip(entries_left.checked_sub(entries));
            let Some(left) = left else {
                tracing::warn!(
                    backend = &*self.context.name,
                    "tool list not read to its end: it has more entries or bytes than are read"
                );
                return true;
            };
            (bytes_left, entries_left) = left;
            let Some(page) = table
                .observe(&self.context.name, response)
                .view::<ListToolsResult>()
            else {
                return false;
            };
            match page.next_cursor().filter(|next| !next.is_null()) {
                None => return true,
                next if next == cursor => return true,
                next => cursor = next,
            }
        }
        true
    }
}
