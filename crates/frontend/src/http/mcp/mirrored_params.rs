//! Caches the tool parameters that modern clients mirror into headers, while the tools' definitions
//! are unchanged.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use fanlight_protocol::param_header::{AnnotationError, ParamHeader, annotations_of_tool};
use fanlight_protocol::{Json, RpcError};
use memchr::memmem::Finder;
use parking_lot::Mutex;

use super::headers::refuse;

/// The maximum number of cached tools; others are parsed again each time.
const CAPACITY: usize = 1024;

/// The mirrored parameters of tools, by tool name.
pub(super) struct MirroredParams {
    /// The maximum number of mirrored parameters per tool.
    limit: usize,
    /// Searches for the name of an annotation, and for an escape, which could hide one.
    signs: [Finder<'static>; 2],
    known: Mutex<HashMap<Box<str>, Known>>,
}

struct Known {
    /// The definition that was parsed. A changed definition is another allocation. Weak, so that
    /// the cache does not keep it alive.
    tool: Weak<Json>,
    /// `None` above the limit.
    params: Option<Arc<[ParamHeader]>>,
}

impl MirroredParams {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            signs: ["x-mcp-header", "\\u"].map(Finder::new),
            known: Mutex::default(),
        }
    }

    /// The mirrored parameters of a tool. An invalid annotation voids all of them; clients that
    /// mirror do not see such a tool.
    ///
    /// # Errors
    ///
    /// If there are more than the limit, or programs could read the definition differently. Clients that mirror do not see such a tool either. Without
    /// a check of its headers, a proxy that relies on them could see another call than the one that
    /// runs.
    pub(super) fn find(
        &self,
        name: &str,
        tool: &Arc<Json>,
    ) -> Result<Option<Arc<[ParamHeader]>>, RpcError> {
        // Fast path: almost no tool has annotations.
        if self
            .signs
            .iter()
            .all(|sign| sign.find(tool.bytes()).is_none())
        {
            return Ok(None);
        }
        let params = self
            .remembered(name, tool)
            .unwrap_or_else(|| self.read(name, tool));
        match params {
            Some(params) => Ok(Some(params)),
            None => Err(refuse(format!(
                "the tool has more than {} mirrored parameters, or not certain ones, and cannot be called over HTTP",
                self.limit
            ))),
        }
    }

    fn remembered(&self, name: &str, tool: &Arc<Json>) -> Option<Option<Arc<[ParamHeader]>>> {
        let known = self.known.lock();
        let known = known
            .get(name)
            .filter(|known| std::ptr::eq(known.tool.as_ptr(), Arc::as_ptr(tool)))?;
        Some(known.params.clone())
    }

    fn read(&self, name: &str, tool: &Arc<Json>) -> Option<Arc<[ParamHeader]>> {
        let found = annotations_of_tool(tool, self.limit);
        let params: Option<Arc<[ParamHeader]>> = match found {
            Err(AnnotationError::TooMany { .. } | AnnotationError::Unreadable(_)) => None,
            found => Some(found.unwrap_or_default().into()),
        };
        let mut known = self.known.lock();
        if known.len() >= CAPACITY && !known.contains_key(name) {
            known.retain(|_, known| known.tool.strong_count() > 0);
            if known.len() >= CAPACITY {
                known.clear();
            }
        }
        known.insert(
            name.into(),
            Known {
                tool: Arc::downgrade(tool),
                params: params.clone(),
            },
        );
        params
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str) -> Arc<Json> {
        let text = format!(
            r#"{{"inputSchema":{{"properties":{{"a":{{"type":"string","x-mcp-header":"{name}"}},"b":{{"type":"string","x-mcp-header":"B"}}}}}}}}"#
        );
        Arc::new(Json::parse(text.into(), 64).unwrap())
    }

    #[test]
    fn parameters_are_read_once_while_the_definition_is_unchanged() {
        let mirrored = MirroredParams::new(2);
        let first = tool("A");
        let [once, again] = [0, 1].map(|_| mirrored.find("t", &first).unwrap().unwrap());
        assert!(Arc::ptr_eq(&once, &again));
        let changed = mirrored.find("t", &tool("C")).unwrap().unwrap();
        assert_eq!((&*once[0].name, &*changed[0].name), ("A", "C"));
        assert_eq!(
            mirrored.find("u", &Arc::new(Json::empty_object())),
            Ok(None)
        );
    }

    #[test]
    fn tool_with_too_many_parameters_is_refused() {
        let (mirrored, tool) = (MirroredParams::new(1), tool("A"));
        for _ in 0..2 {
            assert!(
                mirrored
                    .find("t", &tool)
                    .unwrap_err()
                    .message
                    .contains("more than 1 mirrored parameters")
            );
        }
    }

    #[test]
    fn remembered_tools_are_bounded() {
        let mirrored = MirroredParams::new(2);
        let tools: Vec<_> = (0..CAPACITY + 1)
            .map(|n| (n.to_string(), tool("A")))
            .collect();
        for (name, tool) in &tools {
            mirrored.find(name, tool).unwrap();
        }
        assert_eq!(mirrored.known.lock().len(), 1);
    }
}
