//! Rewrites the arguments of a call for its server.
//!
//! A client must not be able to send an argument that the configuration fixes or hides. That
//! includes names that a lenient server takes for it ([`fanlight_protocol::member_name`]), and
//! forms of `arguments` that Fanlight and the server read differently. Doubtful arguments are
//! refused.

use std::ops::Range;

use bytes::Bytes;
use fanlight_protocol::RpcError;
use fanlight_protocol::json::{Json, quote};
use fanlight_protocol::member_name::FoldedNames;

use super::ArgumentRule;
use crate::fault;

const MEMBER: &str = "arguments";

/// The rules for the arguments of one tool.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Arguments {
    pub(crate) all: Vec<Argument>,
    /// The names that clients may not send.
    refused: FoldedNames,
    /// The members that each call gets, without outer commas.
    fixed: Bytes,
    /// The members that a call without any default gets.
    all_added: Bytes,
}

/// The rule for one argument.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Argument {
    name: String,
    pub(crate) rule: ArgumentRule,
    /// The member with its default; empty if it has none.
    default: Bytes,
}

impl Arguments {
    pub(super) fn new(rules: &[(String, ArgumentRule)]) -> Self {
        let member = |name: &str, value: &Json| -> Vec<u8> {
            [&quote(name), b":".as_slice(), value.bytes()].concat()
        };
        let all = rules.iter().map(|(name, rule)| {
            let default = match rule {
                ArgumentRule::Default(value) => member(name, value).into(),
                _ => Bytes::new(),
            };
            Argument {
                name: name.clone(),
                rule: rule.clone(),
                default,
            }
        });
        let refused = rules
            .iter()
            .filter(|(_, rule)| !matches!(rule, ArgumentRule::Default(_)));
        let fixed = rules.iter().filter_map(|(name, rule)| match rule {
            ArgumentRule::Value(value) => Some(member(name, value)),
            _ => None,
        });
        let mut arguments = Self {
            refused: FoldedNames::new(refused.map(|(name, _)| name.as_str())),
            fixed: fixed.collect::<Vec<_>>().join(&b","[..]).into(),
            all: all.collect(),
            all_added: Bytes::new(),
        };
        arguments.all_added = arguments.missing(&Json::empty_object());
        arguments
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether clients may not send some arguments.
    pub(super) fn refuses(&self) -> bool {
        !self.refused.is_empty()
    }

    /// Whether calls get arguments that their clients did not send.
    pub(crate) fn adds(&self) -> bool {
        self.all
            .iter()
            .any(|argument| argument.rule != ArgumentRule::Hidden)
    }

    /// The parameters of a call with the arguments for the server, and with `name` at its place if
    /// given.
    ///
    /// # Errors
    ///
    /// If the client sends an argument that it may not send.
    pub(crate) fn apply(
        &self,
        params: &Json,
        name: Option<(Range<usize>, &Json)>,
    ) -> Result<Json, RpcError> {
        let [place] = params
            .find([MEMBER])
            .map_err(|duplicate| fault::invalid_params(format!("params: {duplicate}")))?;
        let renamed = |params: &Json| match name.clone() {
            Some((range, name)) => params.with_indexed(range, name),
            None => params.clone(),
        };
        let Some(place) = place else {
            let added = self.added(&Json::empty_object())?;
            return Ok(if added.is_empty() {
                renamed(params)
            } else {
                renamed(params)
                    .with_members_indexed(0, &[b"\"arguments\":{", &*added, b"}"].concat())
            });
        };
        let given = params.slice(place.clone());
        // Some clients write null for no arguments.
        if given.is_null() {
            let object = [b"{", &*self.added(&Json::empty_object())?, b"}"].concat();
            let object = if object.len() > 2 {
                Bytes::from(object)
            } else {
                given.into_bytes()
            };
            return Ok(edited(params, name, place, &object, b""));
        }
        if !given.is_object() {
            return Err(fault::invalid_params("params.arguments must be an object"));
        }
        given
            .read_strictly()
            .map_err(|why| fault::invalid_params(format!("params.arguments: {why}")))?;
        let added = self.added(&given)?;
        if added.is_empty() {
            return Ok(renamed(params));
        }
        let front = place.start + 1;
        Ok(edited(
            params,
            name,
            front..front,
            &added,
            params.comma_at(front),
        ))
    }

    /// The members that `given` lacks.
    ///
    /// # Errors
    ///
    /// If it has one that clients may not send.
    fn added(&self, given: &Json) -> Result<Bytes, RpcError> {
        let mut has_default = false;
        for member in given.members() {
            let key = given
                .bytes()
                .get(member.key.start + 1..member.key.end.saturating_sub(1))
                .unwrap_or_default();
            if self.refused.find(key).is_some() {
                return Err(fault::refused_argument(&given.slice(member.key)));
            }
            has_default = has_default
                || self
                    .defaults()
                    .any(|argument| member.is(given, &argument.name));
        }
        Ok(if has_default {
            self.missing(given)
        } else {
            self.all_added.clone()
        })
    }

    fn defaults(&self) -> impl Iterator<Item = &Argument> {
        self.all
            .iter()
            .filter(|argument| !argument.default.is_empty())
    }

    /// The members that `given` lacks, if it has some of the defaults.
    fn missing(&self, given: &Json) -> Bytes {
        let defaults = self
            .defaults()
            .filter(|argument| given.peek(&argument.name).is_none());
        let fixed = (!self.fixed.is_empty()).then_some(&self.fixed);
        let all = fixed
            .into_iter()
            .chain(defaults.map(|argument| &argument.default));
        all.map(|member| &**member)
            .collect::<Vec<&[u8]>>()
            .join(&b","[..])
            .into()
    }
}

/// Edits `params`: puts the name at its place, `new` at `place`, and `after` behind that.
fn edited(
    params: &Json,
    name: Option<(Range<usize>, &Json)>,
    place: Range<usize>,
    new: &[u8],
    after: &[u8],
) -> Json {
    let end = place.end..place.end;
    let (new, after) = ((place.clone(), new), (end, after));
    match name {
        None => params.with_edits_indexed([new, after]),
        Some((range, name)) if range.start < place.start => {
            params.with_edits_indexed([(range, name.bytes()), new, after])
        }
        Some((range, name)) => params.with_edits_indexed([new, after, (range, name.bytes())]),
    }
}

impl Argument {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The value for calls without the argument, if clients may send another one.
    pub(super) fn default(&self) -> Option<&Json> {
        match &self.rule {
            ArgumentRule::Default(value) => Some(value),
            ArgumentRule::Value(_) | ArgumentRule::Hidden => None,
        }
    }
}
