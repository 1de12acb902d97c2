//! Which parameters of which tool a modern HTTP server wants mirrored into headers, learnt from
//! the tool lists that pass by (2026-07-28 server/tools, x-mcp-header).
//!
//! A tool whose annotations break the rules is taken out of the list, as the revision requires of
//! clients that use Streamable HTTP.
//!
//! Must not know: how lists are fetched.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use fanlight_protocol::Response;
use fanlight_protocol::param_header::{AnnotationError, ParamHeader, without_invalid_tools};

use crate::excerpt::excerpt;

/// Tools remembered at most; a server with more has its table begun anew.
const CAPACITY: usize = 100_000;
/// Tools warned of at most.
const WARNINGS: usize = 100;

/// The mirrored parameters of one server's tools, by tool name.
#[derive(Debug)]
pub(crate) struct ToolHeaders {
    tools: Mutex<HashMap<String, Arc<[ParamHeader]>>>,
    /// Tools that were warned of; lists are read often.
    warned: Mutex<HashSet<String>>,
    /// Most tools have none: they share this.
    none: Arc<[ParamHeader]>,
}

impl Default for ToolHeaders {
    fn default() -> Self {
        Self { tools: Mutex::default(), warned: Mutex::default(), none: Arc::new([]) }
    }
}

impl ToolHeaders {
    /// The mirrored parameters of a tool; `None` if the tool has not been seen.
    pub(crate) fn of(&self, tool: &str) -> Option<Arc<[ParamHeader]>> {
        self.tools.lock().unwrap_or_else(PoisonError::into_inner).get(tool).cloned()
    }

    /// The mirrored parameters of a tool that no list has: none.
    pub(crate) fn none(&self) -> Arc<[ParamHeader]> {
        Arc::clone(&self.none)
    }

    /// Learns from the answer to `tools/list`, and takes out of it what must not be offered.
    pub(crate) fn observe(&self, backend: &str, response: Response) -> Response {
        let Some(result) = response.result() else { return response };
        let mut learnt = Vec::new();
        let without_invalid = without_invalid_tools(&result, |name, found| {
            let headers = match found {
                Ok(headers) if headers.is_empty() => self.none(),
                Ok(headers) => headers.into(),
                Err(reason) => {
                    self.warn_once(backend, name, &reason);
                    self.none()
                }
            };
            learnt.push((name.to_owned(), headers));
        });
        self.remember(learnt);
        match without_invalid {
            Some(result) => response.with_body(&result),
            None => response,
        }
    }

    fn warn_once(&self, backend: &str, tool: &str, reason: &AnnotationError) {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        if warned.len() < WARNINGS && warned.insert(tool.to_owned()) {
            let (tool, reason) = (excerpt(tool.as_bytes(), 80), excerpt(reason.to_string().as_bytes(), 200));
            tracing::warn!(backend, tool, reason, "tool left out of the list");
        }
    }

    fn remember(&self, learnt: Vec<(String, Arc<[ParamHeader]>)>) {
        let mut tools = self.tools.lock().unwrap_or_else(PoisonError::into_inner);
        if tools.len().saturating_add(learnt.len()) > CAPACITY {
            tools.clear();
        }
        tools.extend(learnt.into_iter().take(CAPACITY));
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use fanlight_protocol::Message;

    use super::*;

    const GOOD: &str = r#"{"name":"good","inputSchema":{"properties":{"r":{"type":"string","x-mcp-header":"R"}}}}"#;
    const BAD: &str = r#"{"name":"bad","inputSchema":{"properties":{"r":{"type":"number","x-mcp-header":"R"}}}}"#;
    const PLAIN: &str = r#"{ "name":"plain" }"#;

    fn list(tools: &str) -> Response {
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{ "tools":{tools},"ttlMs":1.0}}}}"#);
        match Message::parse(Bytes::from(text), 64) {
            Ok(Message::Response(response)) => response,
            other => panic!("{other:?}"),
        }
    }

    fn observed(table: &ToolHeaders, tools: &str) -> String {
        table.observe("b", list(tools)).body().as_text().to_owned()
    }

    #[test]
    fn learns_what_is_mirrored() {
        let table = ToolHeaders::default();
        let tools = format!("[{GOOD} , {PLAIN}]");
        assert_eq!(observed(&table, &tools), format!(r#"{{ "tools":{tools},"ttlMs":1.0}}"#));
        assert_eq!(table.of("good").unwrap()[0].name, "R");
        assert!(table.of("plain").unwrap().is_empty());
        assert!(table.of("other").is_none());
    }

    #[test]
    fn takes_out_tools_whose_annotations_break_the_rules() {
        for (given, left) in [
            (format!("[{BAD}]"), "[]".to_owned()),
            (format!("[ {BAD},\n{GOOD} ,{PLAIN} ]"), format!("[ {GOOD} ,{PLAIN} ]")),
            (format!("[{GOOD} ,{BAD}, {PLAIN}\n]"), format!("[{GOOD}, {PLAIN}\n]")),
            (format!("[{GOOD},{BAD} ]"), format!("[{GOOD} ]")),
            (format!("[{BAD},{BAD},{GOOD}]"), format!("[{GOOD}]")),
        ] {
            let table = ToolHeaders::default();
            assert_eq!(observed(&table, &given), format!(r#"{{ "tools":{left},"ttlMs":1.0}}"#));
        }
    }

    #[test]
    fn odd_lists_pass_as_they_are() {
        for tools in ["7", "{}", "[7, null]", "[]"] {
            assert_eq!(observed(&ToolHeaders::default(), tools), format!(r#"{{ "tools":{tools},"ttlMs":1.0}}"#));
        }
    }

    #[test]
    fn the_table_is_bounded() {
        let table = ToolHeaders::default();
        table.remember((0..CAPACITY).map(|n| (n.to_string(), table.none())).collect());
        table.remember(vec![("new".into(), table.none())]);
        assert_eq!(table.tools.lock().unwrap().len(), 1);
    }
}
