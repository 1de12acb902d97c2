//! The arguments of a call as policies see them, made from exactly the text that the server gets.
//!
//! Arguments that two readers could read differently are refused: duplicate members, and members
//! whose spelling a lenient server takes for one that a policy reads.

use std::collections::BTreeSet;

use cedar_policy::RestrictedExpression;
use fanlight_canonical::AmbiguousArguments;
use fanlight_protocol::Json;
use fanlight_protocol::json::Kind;
use fanlight_protocol::member_name::FoldedNames;

use crate::expression::{Arguments, Reads};

/// How many levels of nesting are read.
const NESTING: usize = 32;
/// How many values are read.
const MOST: usize = 10_000;

/// The members that policies read.
#[derive(Debug)]
pub(crate) struct LookedAt {
    /// The members of the outermost object; `None` for all.
    first: Option<BTreeSet<Box<str>>>,
    names: Vec<Box<str>>,
    folded: FoldedNames,
}

impl LookedAt {
    /// The members that rules with these reads look at.
    pub(crate) fn of(reads: &Reads) -> Self {
        let first = match &reads.arguments {
            Some(Arguments::Named(names)) => Some(names.clone()),
            Some(Arguments::All) | None => None,
        };
        let names: Vec<_> = reads.attributes.iter().cloned().collect();
        let folded = FoldedNames::new(names.iter().map(|name| &**name));
        Self {
            first,
            names,
            folded,
        }
    }

    /// The arguments as a record, which is empty without arguments.
    ///
    /// # Errors
    ///
    /// If two readers could read them differently, or there are too many.
    pub(crate) fn record(
        &self,
        arguments: Option<&Json>,
    ) -> Result<RestrictedExpression, AmbiguousArguments> {
        let empty = Json::empty_object();
        let arguments = arguments
            .filter(|arguments| !arguments.is_null())
            .unwrap_or(&empty);
        if !arguments.is_object() {
            return Err(AmbiguousArguments::new(
                "params.arguments must be an object",
            ));
        }
        let mut left = MOST;
        self.object(arguments, self.first.as_ref(), &mut left, NESTING)
    }

    fn object(
        &self,
        object: &Json,
        only: Option<&BTreeSet<Box<str>>>,
        left: &mut usize,
        nesting: usize,
    ) -> Result<RestrictedExpression, AmbiguousArguments> {
        let mut seen = BTreeSet::new();
        let mut fields = Vec::new();
        for member in object.members() {
            let key = object.slice(member.key.clone());
            let raw = key.as_text();
            let inner = raw.get(1..raw.len().saturating_sub(1)).unwrap_or_default();
            let Some(name) = member.name(object) else {
                return Err(AmbiguousArguments::new(
                    "the name of an argument is not Unicode",
                ));
            };
            let like = self
                .folded
                .find(inner.as_bytes())
                .and_then(|at| self.names.get(at));
            if let Some(like) = like.filter(|like| ***like != *name) {
                return Err(AmbiguousArguments::new(&format!(
                    "the argument {name:?} could be taken for {like:?}: leave it out, or write it exactly so"
                )));
            }
            let is_looked_at = only.is_none_or(|only| only.contains(name.as_str()));
            if !seen.insert(name.clone()) {
                return Err(AmbiguousArguments::new(&format!(
                    "the argument {name:?} is there twice"
                )));
            }
            if !is_looked_at {
                continue;
            }
            if let Some(value) = self.value(&object.slice(member.value), left, nesting)? {
                fields.push((name, value));
            }
        }
        RestrictedExpression::new_record(fields)
            .map_err(|error| AmbiguousArguments::new(&error.to_string()))
    }

    /// A value; `None` for null, which policies treat as absent.
    fn value(
        &self,
        value: &Json,
        left: &mut usize,
        nesting: usize,
    ) -> Result<Option<RestrictedExpression>, AmbiguousArguments> {
        let too_many = || {
            AmbiguousArguments::new(
                "the arguments have too many values, or too many inside of each other",
            )
        };
        *left = left.checked_sub(1).ok_or_else(too_many)?;
        let nesting = nesting.checked_sub(1).ok_or_else(too_many)?;
        Ok(match value.kind() {
            Kind::Null => None,
            Kind::Bool => Some(RestrictedExpression::new_bool(value.is_true())),
            Kind::Number => Some(number(value.as_text())),
            Kind::String => {
                let text = value
                    .as_str()
                    .ok_or_else(|| AmbiguousArguments::new("an argument is not Unicode"))?;
                Some(RestrictedExpression::new_string(text.into_owned()))
            }
            Kind::Array => {
                let mut all = Vec::new();
                for element in value.elements() {
                    all.extend(self.value(&value.slice(element), left, nesting)?);
                }
                Some(RestrictedExpression::new_set(all))
            }
            Kind::Object => Some(self.object(value, None, left, nesting)?),
        })
    }
}

/// A number. A whole number is a long, however it is written. A number with up to four places is a
/// decimal. Any other number stays a text, which numeric comparisons do not accept.
fn number(text: &str) -> RestrictedExpression {
    if let Ok(whole) = text.parse::<i64>() {
        return RestrictedExpression::new_long(whole);
    }
    // The limit of exact whole numbers for programs that have only floating point numbers.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match text.parse::<f64>() {
        Ok(value) if value.fract() == 0.0 && value.abs() < EXACT =>
        {
            #[expect(
                clippy::cast_possible_truncation,
                reason = "it is whole, and within what is exact"
            )]
            RestrictedExpression::new_long(value as i64)
        }
        Ok(value) if value.abs() < 1e14 => match format!("{value}").split_once('.') {
            Some((whole, places)) if places.len() <= 4 => {
                RestrictedExpression::new_decimal(format!("{whole}.{places}"))
            }
            _ => RestrictedExpression::new_string(text.to_owned()),
        },
        _ => RestrictedExpression::new_string(text.to_owned()),
    }
}
