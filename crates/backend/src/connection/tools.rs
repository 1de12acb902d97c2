//! Facts about a server's tools, from its tool lists; a call reads the list if none has been seen.
//!
//! For modern HTTP servers: the parameters that headers must mirror (2026-07-28 server/tools,
//! x-mcp-header). For legacy servers: the tools to call as tasks (2025-11-25 basic/utilities/tasks,
//! Tool-Level Negotiation).
//!
//! A tool whose annotations break the rules is removed from the list, as 2026-07-28 requires of
//! clients that use Streamable HTTP.

use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::time::Duration;

use fanlight_canonical::{Call, LIST_ENTRIES, TaskDialect};
use fanlight_fair::limit;
use fanlight_protocol::annotations::declares_repeatable;
use fanlight_protocol::param_header::{AnnotationError, without_invalid_tools};
use fanlight_protocol::result::ListToolsResult;
use fanlight_protocol::{Json, Method, ObjectBuilder, Response, RpcError, code};
use foldhash::fast::RandomState;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use super::Connection;
use crate::log::excerpt;
use crate::request::dialect::{MirroredParam, request_subject};
use crate::settings::{list_bytes, list_pages};

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

/// The maximum number of tools; the table is cleared if a server has more. Then parameters are read
/// again.
const CAPACITY: usize = 100_000;
/// The maximum number of tools to warn about.
const WARNINGS: usize = 100;

/// The known tools of one server, by name.
#[derive(Debug)]
pub(crate) struct ToolTable {
    /// Whether the server wants parameters mirrored; otherwise it may want tasks.
    pub(crate) mirrors: bool,
    /// The maximum number of mirrored parameters per tool.
    max_mirrored: usize,
    known: Mutex<Known>,
    /// The maximum number of bytes for tool and parameter names; the table is cleared if a server
    /// has more.
    max_bytes: usize,
    /// Tools with a warning in the log; lists are read often.
    warned: Mutex<HashSet<String>>,
    /// Shared by all tools without mirrored parameters, which are most.
    none: Arc<[MirroredParam]>,
}

#[derive(Debug, Default)]
struct Known {
    tools: HashMap<String, KnownTool, RandomState>,
    bytes: usize,
    /// The hash and the time of the last list, unless tools were removed from it.
    last: Option<(u64, Instant)>,
}

/// The known facts about one tool.
#[derive(Clone, Debug)]
pub(crate) struct KnownTool {
    /// The mirrored parameters.
    headers: Arc<[MirroredParam]>,
    /// Whether the tool can be called only as a task.
    needs_task: bool,
    /// Whether the tool declares that calling it twice is harmless.
    is_repeatable: bool,
    /// The time of the last list with the tool.
    seen: Instant,
}

impl ToolTable {
    /// An empty table. `mirrors` tells whether the server wants parameters mirrored; otherwise it
    /// has legacy tasks.
    pub(crate) fn new(mirrors: bool, max_mirrored: usize, max_bytes: usize) -> Self {
        Self {
            mirrors,
            max_mirrored,
            max_bytes,
            known: Mutex::default(),
            warned: Mutex::default(),
            none: Arc::new([]),
        }
    }

    /// The facts about a tool; `None` if no list had it yet.
    pub(crate) fn find(&self, tool: &str) -> Option<KnownTool> {
        self.known.lock().tools.get(tool).cloned()
    }

    /// Learns from the answer to `tools/list`, and removes tools that clients must not see.
    pub(crate) fn observe(&self, backend: &str, response: Response) -> Response {
        let Some(result) = response.result() else {
            return response;
        };
        let (mut learnt, seen) = (Vec::new(), Instant::now());
        let Some(hash) = self.known.lock().hash_of_change(&result, seen) else {
            return response;
        };
        let mut learn = |tool: &Json, name: &str, headers, needs_task| {
            let known = KnownTool {
                headers,
                needs_task,
                is_repeatable: declares_repeatable(tool),
                seen,
            };
            learnt.push((name.to_owned(), known));
        };
        let without_invalid = if self.mirrors {
            without_invalid_tools(&result, self.max_mirrored, |tool, name, found| {
                let headers = match found {
                    Ok(headers) if headers.is_empty() => Arc::clone(&self.none),
                    Ok(headers) => headers.into_iter().filter_map(MirroredParam::new).collect(),
                    Err(reason) => {
                        self.warn_once(backend, name, &reason);
                        Arc::clone(&self.none)
                    }
                };
                learn(tool, name, headers, false);
            })
        } else {
            let tools = result.get("tools");
            for tool in tools.iter().flat_map(Json::items) {
                if let Some(name) = tool.text_at("name") {
                    let execution = tool.get("execution");
                    let needs_task = execution.is_some_and(|it| it.says("taskSupport", "required"));
                    learn(&tool, &name, Arc::clone(&self.none), needs_task);
                }
            }
            None
        };
        let last = without_invalid.is_none().then_some((hash, seen));
        self.remember(learnt, last);
        match without_invalid {
            Some(result) => response.with_body(&result),
            None => response,
        }
    }

    fn warn_once(&self, backend: &str, tool: &str, reason: &AnnotationError) {
        let mut warned = self.warned.lock();
        let tool = excerpt(tool.as_bytes(), 80);
        if warned.len() < WARNINGS && warned.insert(tool.clone()) {
            let reason = excerpt(reason.to_string().as_bytes(), 200);
            tracing::warn!(backend, tool, reason, "tool left out of the list");
        }
    }

    /// Takes over the facts of a list, and `last`, the list's hash, which recognizes it when it comes
    /// again.
    fn remember(&self, learnt: Vec<(String, KnownTool)>, last: Option<(u64, Instant)>) {
        let mut known = self.known.lock();
        for (name, tool) in learnt {
            let bytes = bytes_of(&name, &tool);
            if known.tools.len() >= CAPACITY || known.bytes.saturating_add(bytes) > self.max_bytes {
                *known = Known::default();
            }
            if bytes <= self.max_bytes {
                known.bytes += bytes;
                if let Some(before) = known.tools.insert(name.clone(), tool) {
                    known.bytes -= bytes_of(&name, &before);
                }
            }
        }
        // The lock is still held, so no other list changes the facts in between.
        known.last = last;
    }
}

impl Known {
    /// The hash of a list. If it is the last one again, this notes the time, and returns `None`:
    /// reading all definitions takes most of the time of a list that passes.
    fn hash_of_change(&mut self, result: &Json, now: Instant) -> Option<u64> {
        let hash = self.tools.hasher().hash_one(result.bytes());
        let Some((_, before)) = self.last.filter(|last| last.0 == hash) else {
            return Some(hash);
        };
        for tool in self.tools.values_mut().filter(|it| it.seen == before) {
            tool.seen = now;
        }
        self.last = Some((hash, now));
        None
    }
}

fn bytes_of(name: &str, tool: &KnownTool) -> usize {
    name.len() + tool.headers.iter().map(MirroredParam::bytes).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use fanlight_protocol::Message;

    use super::*;

    const BYTES: usize = 1 << 20;
    const GOOD: &str = r#"{"name":"good","inputSchema":{"properties":{"r":{"type":"string","x-mcp-header":"R"}}}}"#;
    const BAD: &str =
        r#"{"name":"bad","inputSchema":{"properties":{"r":{"type":"number","x-mcp-header":"R"}}}}"#;
    const PLAIN: &str = r#"{ "name":"plain" }"#;
    const TASK: &str = r#"{"name":"task","execution":{"taskSupport":"required"}}"#;
    const MAY: &str = r#"{"name":"may","execution":{"taskSupport":"optional"}}"#;

    fn list(tools: &str) -> Response {
        let text =
            format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{ "tools":{tools},"ttlMs":1.0}}}}"#);
        match Message::parse(Bytes::from(text), 64) {
            Ok(Message::Response(response)) => response,
            other => panic!("{other:?}"),
        }
    }

    fn observed(table: &ToolTable, tools: &str) -> String {
        table.observe("b", list(tools)).body().as_text().to_owned()
    }

    #[test]
    fn learns_what_is_mirrored() {
        let table = ToolTable::new(true, 2, BYTES);
        let tools = format!("[{GOOD} , {PLAIN}]");
        assert_eq!(
            observed(&table, &tools),
            format!(r#"{{ "tools":{tools},"ttlMs":1.0}}"#)
        );
        assert_eq!(table.find("good").unwrap().headers.len(), 1);
        assert!(table.find("plain").unwrap().headers.is_empty());
        assert!(table.find("other").is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn list_that_comes_again_renews_its_tools_and_no_others() {
        for mirrors in [true, false] {
            let table = ToolTable::new(mirrors, 2, BYTES);
            let age = |name: &str| table.find(name).unwrap().seen.elapsed().as_secs();
            let wait = || tokio::time::advance(Duration::from_secs(1));
            observed(&table, &format!("[{MAY}]"));
            wait().await;
            for _ in 0..3 {
                observed(&table, &format!("[{GOOD},{PLAIN}]"));
                wait().await;
            }
            assert_eq!(["may", "good", "plain"].map(age), [4, 1, 1]);
            observed(&table, &format!("[{MAY}]"));
            assert_eq!(["may", "good", "plain"].map(age), [0, 1, 1]);
        }
    }

    #[test]
    fn list_is_read_again_after_one_with_invalid_tools() {
        let table = ToolTable::new(true, 2, BYTES);
        let plain = GOOD.replace("x-mcp-header", "x-other");
        for (list, headers) in [
            (format!("[{GOOD}]"), 1),
            (format!("[{BAD},{plain}]"), 0),
            (format!("[{GOOD}]"), 1),
        ] {
            observed(&table, &list);
            assert_eq!(table.find("good").unwrap().headers.len(), headers);
        }
    }

    #[test]
    fn invalid_tools_are_removed_from_each_list() {
        let table = ToolTable::new(true, 2, BYTES);
        for _ in 0..2 {
            let left = observed(&table, &format!("[{BAD},{GOOD}]"));
            assert_eq!(left, format!(r#"{{ "tools":[{GOOD}],"ttlMs":1.0}}"#));
        }
    }

    #[test]
    fn learns_what_needs_a_task_and_leaves_the_list_alone() {
        let table = ToolTable::new(false, 2, BYTES);
        let tools = format!("[{TASK},{MAY},{PLAIN},{BAD},7]");
        assert_eq!(
            observed(&table, &tools),
            format!(r#"{{ "tools":{tools},"ttlMs":1.0}}"#)
        );
        assert!(table.find("task").unwrap().needs_task);
        assert!(!table.find("may").unwrap().needs_task);
        assert!(!table.find("plain").unwrap().needs_task);
        assert!(table.find("bad").unwrap().headers.is_empty());
        observed(
            &table,
            &format!("[{}]", TASK.replace("required", "optional")),
        );
        assert!(!table.find("task").unwrap().needs_task);
    }

    #[test]
    fn learns_what_can_be_called_twice() {
        let tool = |name: &str, annotations: &str| {
            format!(r#"{{"name":"{name}","annotations":{annotations}}}"#)
        };
        let tools = [
            tool("reads", r#"{"readOnlyHint":true}"#),
            tool("sets", r#"{"readOnlyHint":false,"idempotentHint":true}"#),
            tool("adds", r#"{"destructiveHint":false}"#),
            tool("text", r#"{"readOnlyHint":"true","idempotentHint":1}"#),
            PLAIN.to_owned(),
        ];
        for mirrors in [true, false] {
            let table = ToolTable::new(mirrors, 2, BYTES);
            observed(&table, &format!("[{}]", tools.join(",")));
            let repeatable = ["reads", "sets", "adds", "text", "plain"]
                .map(|name| table.find(name).unwrap().is_repeatable);
            assert_eq!(repeatable, [true, true, false, false, false], "{mirrors}");
        }
    }

    #[test]
    fn takes_out_tools_whose_annotations_break_the_rules() {
        for (given, left) in [
            (format!("[{BAD}]"), "[]".to_owned()),
            (
                format!("[ {BAD},\n{GOOD} ,{PLAIN} ]"),
                format!("[ {GOOD} ,{PLAIN} ]"),
            ),
            (
                format!("[{GOOD} ,{BAD}, {PLAIN}\n]"),
                format!("[{GOOD}, {PLAIN}\n]"),
            ),
            (format!("[{GOOD},{BAD} ]"), format!("[{GOOD} ]")),
            (format!("[{BAD},{BAD},{GOOD}]"), format!("[{GOOD}]")),
        ] {
            let table = ToolTable::new(true, 2, BYTES);
            assert_eq!(
                observed(&table, &given),
                format!(r#"{{ "tools":{left},"ttlMs":1.0}}"#)
            );
        }
    }

    #[test]
    fn takes_out_tools_with_too_many_mirrored_parameters() {
        let properties: Vec<_> = (0..60_000)
            .map(|n| format!(r#""p{n}":{{"type":"string","x-mcp-header":"H{n}"}}"#))
            .collect();
        let many = format!(
            r#"{{"name":"many","inputSchema":{{"properties":{{{}}}}}}}"#,
            properties.join(",")
        );
        let table = ToolTable::new(true, 2, BYTES);
        assert_eq!(
            observed(&table, &format!("[{many},{GOOD}]")),
            format!(r#"{{ "tools":[{GOOD}],"ttlMs":1.0}}"#)
        );
        assert!(table.find("many").unwrap().headers.is_empty());
        assert_eq!(table.find("good").unwrap().headers.len(), 1);
    }

    #[test]
    fn odd_lists_pass_as_they_are() {
        for mirrors in [true, false] {
            for tools in ["7", "{}", "[7, null]", "[]"] {
                assert_eq!(
                    observed(&ToolTable::new(mirrors, 2, BYTES), tools),
                    format!(r#"{{ "tools":{tools},"ttlMs":1.0}}"#)
                );
            }
        }
    }

    #[test]
    fn the_table_is_bounded() {
        let table = ToolTable::new(true, 2, BYTES);
        let known = || KnownTool {
            headers: Arc::new([]),
            needs_task: false,
            is_repeatable: false,
            seen: Instant::now(),
        };
        table.remember(
            (0..CAPACITY).map(|n| (n.to_string(), known())).collect(),
            None,
        );
        table.remember(vec![("new".into(), known())], None);
        assert_eq!(table.known.lock().tools.len(), 1);
        let large = |n: usize| ("x".repeat(BYTES / 4 - 1) + &n.to_string(), known());
        (0..9).for_each(|n| table.remember(vec![large(n), large(n)], None));
        let kept = table.known.lock();
        assert!(kept.bytes <= BYTES && kept.tools.contains_key(&large(8).0));
        assert_eq!(
            kept.bytes,
            kept.tools.keys().map(String::len).sum::<usize>()
        );
    }
}
