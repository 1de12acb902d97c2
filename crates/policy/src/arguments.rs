//! The arguments of a call as policies see them, made from exactly the text that the server gets.
//!
//! Arguments that two readers could read differently are refused: duplicate members, and members
//! whose spelling a lenient server takes for one that a policy reads.

use std::borrow::Cow;
use std::collections::BTreeSet;

use cedar_policy::RestrictedExpression;
use fanlight_canonical::AmbiguousArguments;
use fanlight_protocol::Json;
use fanlight_protocol::json::Kind;
use fanlight_protocol::member_name::FoldedNames;
use itertools::Itertools as _;

use crate::attributes::text;
use crate::expression::{Arguments, Reads};
use crate::typed::{BOOL, DECIMAL, LIST_OF, LONG, TEXT};

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
    pub(crate) fn from_reads(reads: &Reads) -> Self {
        let first = match &reads.arguments {
            Some(Arguments::Named(names)) => Some(names.clone()),
            Some(Arguments::All) | None => None,
        };
        let names = reads.attributes.iter().cloned().collect_vec();
        let folded = FoldedNames::new(names.iter().map(|name| &**name));
        Self {
            first,
            names,
            folded,
        }
    }

    /// The arguments, which are an empty record without any.
    ///
    /// # Errors
    ///
    /// If two readers could read them differently, or there are too many.
    pub(crate) fn read(
        &self,
        arguments: Option<&Json>,
    ) -> Result<ReadArguments, AmbiguousArguments> {
        let empty = Json::empty_object();
        let arguments = arguments
            .filter(|arguments| !arguments.is_null())
            .unwrap_or(&empty);
        if !arguments.is_object() {
            return Err(AmbiguousArguments::new(
                "params.arguments must be an object",
            ));
        }
        arguments
            .read_strictly()
            .map_err(|why| AmbiguousArguments::new(&format!("params.arguments: {why}")))?;
        let mut left = MOST;
        let (values, types) = self.object(arguments, self.first.as_ref(), &mut left, NESTING)?;
        Ok(ReadArguments { values, types })
    }

    fn object(
        &self,
        object: &Json,
        only: Option<&BTreeSet<Box<str>>>,
        left: &mut usize,
        nesting: usize,
    ) -> Result<Typed, AmbiguousArguments> {
        let (mut values, mut types) = (Vec::new(), Vec::new());
        for member in object.members() {
            let key = member.key.start + 1..member.key.end.saturating_sub(1);
            let inner = object.bytes().get(key).unwrap_or_default();
            let name = member.name(object).unwrap_or_default();
            let like = self.folded.find(inner).and_then(|at| self.names.get(at));
            if let Some(like) = like.filter(|like| ***like != *name) {
                return Err(AmbiguousArguments::new(&format!(
                    "the argument {name:?} could be taken for {like:?}: leave it out, or write it exactly so"
                )));
            }
            let is_looked_at = only.is_none_or(|only| only.contains(name.as_str()));
            if !is_looked_at {
                continue;
            }
            if let Some((value, its_type)) =
                self.value(&object.slice(member.value), left, nesting)?
            {
                values.push((name.clone(), value));
                types.push((name, its_type));
            }
        }
        Ok((record(values)?, record(types)?))
    }

    /// A value and its type; `None` for null, which policies treat as absent.
    fn value(
        &self,
        value: &Json,
        left: &mut usize,
        nesting: usize,
    ) -> Result<Option<Typed>, AmbiguousArguments> {
        let too_many = || {
            AmbiguousArguments::new(
                "the arguments have too many values, or too many inside of each other",
            )
        };
        *left = left.checked_sub(1).ok_or_else(too_many)?;
        let nesting = nesting.checked_sub(1).ok_or_else(too_many)?;
        Ok(match value.kind() {
            Kind::Null => None,
            Kind::Bool => Some((RestrictedExpression::new_bool(value.is_true()), text(BOOL))),
            Kind::Number => {
                let (number, name) = number(value.as_text())?;
                Some((number, text(&name)))
            }
            Kind::String => {
                let content = value.as_str().unwrap_or_default();
                Some((text(&content), text(TEXT)))
            }
            Kind::Array => {
                let (mut all, mut names) = (Vec::new(), BTreeSet::new());
                for element in value.items() {
                    names.insert(element_type(&element)?);
                    let element = self.value(&element, left, nesting)?;
                    all.extend(element.map(|(value, _)| value));
                }
                let names = names.into_iter().join(" or ");
                let name = format!("{LIST_OF}{names}");
                Some((RestrictedExpression::new_set(all), text(&name)))
            }
            Kind::Object => Some(self.object(value, None, left, nesting)?),
        })
    }
}

/// A value and its type.
type Typed = (RestrictedExpression, RestrictedExpression);

/// The arguments of one call, and their [types](crate::typed).
#[derive(Clone)]
pub(crate) struct ReadArguments {
    pub(crate) values: RestrictedExpression,
    pub(crate) types: RestrictedExpression,
}

fn record(
    fields: Vec<(String, RestrictedExpression)>,
) -> Result<RestrictedExpression, AmbiguousArguments> {
    RestrictedExpression::new_record(fields)
        .map_err(|error| AmbiguousArguments::new(&error.to_string()))
}

/// The type of an element of a list.
fn element_type(element: &Json) -> Result<Cow<'static, str>, AmbiguousArguments> {
    Ok(Cow::Borrowed(match element.kind() {
        Kind::Null => "null",
        Kind::Bool => BOOL,
        Kind::Number => return number(element.as_text()).map(|(_, name)| name),
        Kind::String => TEXT,
        Kind::Array => "list",
        Kind::Object => "object",
    }))
}

/// A number and its type. A whole number is a long, however it is written. A number with up to four
/// places is a decimal. Any other number has a type of its own, so only the same text equals it.
fn number(text: &str) -> Result<(RestrictedExpression, Cow<'static, str>), AmbiguousArguments> {
    // From here on, programs with floating point numbers take several whole numbers for one.
    const INEXACT: f64 = 9_007_199_254_740_992.0;
    let value = text.parse::<f64>().unwrap_or(f64::INFINITY);
    if value.fract() == 0.0 && value.abs() < INEXACT {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "it is whole, and within what is exact"
        )]
        return Ok((RestrictedExpression::new_long(value as i64), LONG.into()));
    }
    if value.abs() < 1e14
        && let Some((whole, places)) = format!("{value}").split_once('.')
        && places.len() <= 4
    {
        let decimal = RestrictedExpression::new_decimal(format!("{whole}.{places}"));
        return Ok((decimal, DECIMAL.into()));
    }
    record(Vec::new()).map(|number| (number, text.to_owned().into()))
}
