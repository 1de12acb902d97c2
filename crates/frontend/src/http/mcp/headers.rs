//! Checks that the headers of modern requests agree with the body parts they repeat.
//!
//! Source: 2026-07-28 streamable-http, Request Metadata and Server Validation. A proxy may route
//! the request by its headers, so a disagreement would let it see another request than the one that
//! runs.
//!
//! The parameters that clients mirror into headers are cached while a tool's definition is
//! unchanged.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

use fanlight_protocol::json::Value;
use fanlight_protocol::param_header::{AnnotationError, ParamHeader, annotations_of_tool};
use fanlight_protocol::{Json, Method, Revision, RpcError, code, header, word};
use http::HeaderName;
use parking_lot::Mutex;

use super::arrived::{Field, Fields};
use crate::eras::fault::{self, shorten};
use crate::eras::modern;
use crate::eras::params::{Meta, Params};

/// The name of the header with a legacy request's session.
pub(super) static SESSION_ID: HeaderName = HeaderName::from_static(header::SESSION_ID);

/// The value of `MCP-Protocol-Version`. It is empty, which is no revision, if it is repeated or not
/// text.
pub(crate) fn protocol_version<'a>(fields: &Fields<'a>) -> Option<&'a str> {
    match fields.protocol_version {
        Field::Absent => None,
        Field::One(value) => Some(value.to_str().unwrap_or_default().trim_matches([' ', '\t'])),
        Field::Several(_) => Some(""),
    }
}

/// Checks `MCP-Protocol-Version` and the revision in `_meta`, in that order; returns the revision.
pub(crate) fn check_version(fields: &Fields<'_>, meta: &Meta) -> Result<Revision, RpcError> {
    let name = "MCP-Protocol-Version";
    let mirrored =
        single_value(fields.protocol_version, name)?.ok_or_else(|| missing_header(name))?;
    if let (Some(version), Some(revision)) =
        (meta.protocol_version(), modern::modern_revision(mirrored))
        && version.is_str(mirrored)
    {
        return Ok(revision);
    }
    match meta.protocol_version().and_then(Value::as_str) {
        Some(version) if version != mirrored => Err(mismatch(name, mirrored, &version)),
        // A known revision decides what `_meta` must have.
        None if modern::modern_revision(mirrored).is_none() => {
            Err(modern::unsupported_revision(mirrored))
        }
        _ => modern::revision(meta),
    }
}

/// Checks `Mcp-Method` and the headers that repeat members of the params.
pub(crate) fn check_standard(
    fields: &Fields<'_>,
    revision: Revision,
    method: &Method,
    params: &Params,
) -> Result<(), RpcError> {
    let name = "Mcp-Method";
    let mirrored = single_value(fields.method, name)?.ok_or_else(|| missing_header(name))?;
    if mirrored != method.as_str() {
        return Err(mismatch(name, mirrored, method.as_str()));
    }
    for header in revision.mirrored.unwrap_or_default() {
        let Some(member) = header.find(method.as_str()) else {
            continue;
        };
        let (name, source) = (header.shown, params.member(member));
        let mirrored = decoded(fields.field(header.header), name)?;
        let mirrored = mirrored.ok_or_else(|| missing_header(name))?;
        if source.is_some_and(|source| source.is_str(&mirrored)) {
            continue;
        }
        return match source.and_then(Value::as_str) {
            Some(value) => Err(mismatch(name, &mirrored, &value)),
            None => Err(refuse(format!(
                "{name} is there, but \"{member}\" in the params is not, or is not a string"
            ))),
        };
    }
    Ok(())
}

/// Checks the `Mcp-Param-*` headers of a tool call. `params` are the tool's mirrored parameters.
pub(crate) fn check_params(
    fields: &Fields<'_>,
    mirrored: &[ParamHeader],
    params: &Params,
) -> Result<(), RpcError> {
    if mirrored.is_empty() {
        return Ok(());
    }
    let arguments = params.arguments();
    if let Some(arguments) = &arguments {
        let checked = arguments.read_strictly();
        checked.map_err(|why| fault::unreadable_error("params.arguments", &why))?;
    }
    mirrored
        .iter()
        .try_for_each(|param| check_param(fields, param, arguments.as_ref()))
}

fn check_param(
    fields: &Fields<'_>,
    param: &ParamHeader,
    arguments: Option<&Json>,
) -> Result<(), RpcError> {
    let name = format!("Mcp-Param-{}", param.name);
    // A header with invalid characters is always refused.
    let received = decoded(Field::find(fields.all, &name), &name)?;
    let value = argument(param, arguments);
    let said = arguments.and_then(|arguments| param.value(arguments));
    match (value, said, received) {
        // The argument is absent or null: the server "MUST NOT expect the header", so a header
        // means nothing.
        (None, _, _) => Ok(()),
        (Some(_), Some(said), Some(received)) if ParamHeader::values_match(&received, &said) => {
            Ok(())
        }
        (Some(_), Some(_), None) => Err(missing_header(&name)),
        // No header can express this value, so none is expected. A header must still not contradict
        // it.
        (Some(_), None, None) => Ok(()),
        (Some(value), None, Some(received)) if received == value.as_text() => Ok(()),
        (Some(_), _, Some(_)) => Err(refuse(format!(
            "{name} does not match {:?} in the arguments",
            param.path.join(".")
        ))),
    }
}

/// The mirrored argument; `None` if it is absent or null. A repeated member on the path to it is
/// refused: the header could match one, and the tool could use the other.
fn argument(param: &ParamHeader, arguments: Option<&Json>) -> Option<Json> {
    let value = param
        .path
        .iter()
        .try_fold(arguments?.clone(), |at, step| at.get(step))?;
    Some(value).filter(|value| !value.is_null())
}

/// The single value of a header, without white space around it (RFC 9110, 5.5).
fn single_value<'a>(field: Field<'a>, name: &str) -> Result<Option<&'a str>, RpcError> {
    let value = match field {
        Field::Absent => return Ok(None),
        Field::One(value) => value,
        Field::Several(_) => return Err(refuse(format!("{name} is there more than once"))),
    };
    let text = value
        .to_str()
        .map_err(|_| refuse(format!("{name} has characters that a header may not have")))?;
    Ok(Some(text.trim_matches([' ', '\t'])))
}

/// The single value of a header, which may be Base64 between markers.
fn decoded<'a>(field: Field<'a>, name: &str) -> Result<Option<Cow<'a, str>>, RpcError> {
    let Some(value) = single_value(field, name)? else {
        return Ok(None);
    };
    let decoded = header::decode(value.as_bytes())
        .map_err(|error| refuse(format!("{name} is malformed: {error}")))?;
    Ok(Some(decoded))
}

fn missing_header(name: &str) -> RpcError {
    refuse(format!("{name} is missing"))
}

fn mismatch(name: &str, mirrored: &str, value: &str) -> RpcError {
    refuse(format!(
        "{name} header value {} does not match body value {}",
        shorten(mirrored),
        shorten(value)
    ))
}

/// The error for headers that contradict the body.
pub(super) fn refuse(reason: String) -> RpcError {
    RpcError::new(code::HEADER_MISMATCH, format!("Header mismatch: {reason}"))
}

/// The maximum number of cached tools; others are parsed again each time.
const CAPACITY: usize = 1024;

/// The mirrored parameters of tools, by tool name.
pub(super) struct MirroredParams {
    /// The maximum number of mirrored parameters per tool.
    limit: usize,
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
        if !tool.may_contain(word!("x-mcp-header")) {
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
mod tests;

#[cfg(test)]
mod mirrored_params_tests {
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
