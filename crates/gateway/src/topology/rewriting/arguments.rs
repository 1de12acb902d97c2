//! The arguments of a call as the backend gets them.
//!
//! A client must not be able to send an argument that the configuration fixes or hides: neither itself nor a name that a
//! lenient server takes for it ([`fanlight_protocol::member_name`]), nor in a form of `arguments` that is read
//! differently here and there. Whatever is in doubt is refused.

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
    all: Vec<Argument>,
    /// The names of those that clients may not send.
    refused: FoldedNames,
    /// The members that each call gets, without outer commas.
    fixed: Bytes,
}

/// The rule for one argument.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Argument {
    name: String,
    rule: ArgumentRule,
    /// The member with its default, if it has one.
    default: Bytes,
}

impl Arguments {
    pub(super) fn new(rules: &[(String, ArgumentRule)]) -> Self {
        let member = |name: &str, value: &Json| -> Vec<u8> { [&quote(name), b":".as_slice(), value.bytes()].concat() };
        let all = rules.iter().map(|(name, rule)| {
            let default = match rule {
                ArgumentRule::Default(value) => member(name, value).into(),
                _ => Bytes::new(),
            };
            Argument { name: name.clone(), rule: rule.clone(), default }
        });
        let refused = rules.iter().filter(|(_, rule)| !matches!(rule, ArgumentRule::Default(_)));
        let fixed = rules.iter().filter_map(|(name, rule)| match rule {
            ArgumentRule::Value(value) => Some(member(name, value)),
            _ => None,
        });
        Self {
            refused: FoldedNames::new(refused.map(|(name, _)| name.as_str())),
            fixed: fixed.collect::<Vec<_>>().join(&b","[..]).into(),
            all: all.collect(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The arguments in the order of the configuration.
    pub(crate) fn all(&self) -> &[Argument] {
        &self.all
    }

    /// Whether clients may not send some of them.
    pub(super) fn refuses(&self) -> bool {
        !self.refused.is_empty()
    }

    /// Whether calls get anything that their clients did not send.
    pub(crate) fn adds(&self) -> bool {
        self.all.iter().any(|argument| argument.rule != ArgumentRule::Hidden)
    }

    /// The parameters of a call with the arguments that the backend is to get.
    ///
    /// # Errors
    ///
    /// If the client sends what it may not.
    pub(crate) fn apply(&self, params: &Json) -> Result<Json, RpcError> {
        let [place] =
            params.find([MEMBER]).map_err(|duplicate| fault::invalid_params(format!("params: {duplicate}")))?;
        let Some(place) = place else {
            let added = self.missing(&Json::empty_object());
            return Ok(match added.is_empty() {
                true => params.clone(),
                false => params.with_members_indexed(0, &[b"\"arguments\":{", &*added, b"}"].concat()),
            });
        };
        let given = params.slice(place.clone());
        // Null is what some clients write for no arguments.
        if given.is_null() {
            let added = self.missing(&Json::empty_object());
            return Ok(match added.is_empty() {
                true => params.clone(),
                false => {
                    let start = place.start;
                    params.with_indexed(place, &Json::empty_object()).with_members_indexed(start, &added)
                }
            });
        }
        if !given.is_object() {
            return Err(fault::invalid_params("params.arguments must be an object"));
        }
        self.check(&given)?;
        Ok(params.with_members_indexed(place.start, &self.missing(&given)))
    }

    /// The members that `given` lacks.
    fn missing(&self, given: &Json) -> Bytes {
        let defaults = self.all.iter().filter(|argument| !argument.default.is_empty());
        let mut defaults = defaults.filter(|argument| given.peek(&argument.name).is_none()).peekable();
        if defaults.peek().is_none() {
            return self.fixed.clone();
        }
        let fixed = (!self.fixed.is_empty()).then_some(&self.fixed);
        let all: Vec<_> = fixed.into_iter().chain(defaults.map(|argument| &argument.default)).collect();
        all.iter().map(|member| &***member).collect::<Vec<&[u8]>>().join(&b","[..]).into()
    }

    fn check(&self, given: &Json) -> Result<(), RpcError> {
        if self.refused.is_empty() {
            return Ok(());
        }
        for member in given.members() {
            let key = given.bytes().get(member.key.start + 1..member.key.end.saturating_sub(1)).unwrap_or_default();
            if self.refused.find(key).is_some() {
                return Err(fault::refused_argument(&given.slice(member.key)));
            }
        }
        Ok(())
    }
}

impl Argument {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn rule(&self) -> &ArgumentRule {
        &self.rule
    }

    /// The value of calls without the argument, if clients may send another.
    pub(super) fn default(&self) -> Option<&Json> {
        match &self.rule {
            ArgumentRule::Default(value) => Some(value),
            ArgumentRule::Value(_) | ArgumentRule::Hidden => None,
        }
    }
}
