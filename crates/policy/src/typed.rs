//! Comparisons of arguments that fail if the types differ.
//!
//! In Cedar, values of different types are just not equal. A lenient server takes `"true"`, `1` or
//! `["main"]` for the value that a rule forbids. So a rule that reads arguments is rewritten when it
//! is loaded: each comparison first compares types, and is an error if they differ. An error counts
//! as met in a `forbid`, and as not met in a `permit`.
//!
//! Cedar cannot ask for a value's type. So beside the arguments, the context has their types in a
//! record of the same shape ([`TYPES`]).

use std::sync::Arc;

use cedar_policy::pst::{BinaryOp, Expr, Literal, UnaryOp, Var};

use crate::expression::{ARGUMENTS, Reads};

/// The member of the context with the types of the arguments. Its name is none that policies read.
pub(crate) const TYPES: &str = "types of the arguments";
/// The types of single values.
pub(crate) const TEXT: &str = "text";
pub(crate) const LONG: &str = "long";
pub(crate) const BOOL: &str = "bool";
pub(crate) const DECIMAL: &str = "decimal";
/// All types of single values that can be equal. Arguments never have one of the last three types.
const ALL: [&str; 7] = [TEXT, LONG, BOOL, DECIMAL, "ip", "datetime", "duration"];
/// The type of a list, before the types of its elements.
pub(crate) const LIST_OF: &str = "list of ";

/// Whether an expression has a type.
#[derive(Clone)]
enum Test {
    Always,
    Never,
    If(Arc<Expr>),
}

impl Test {
    fn from_bool(is_so: bool) -> Self {
        if is_so { Self::Always } else { Self::Never }
    }

    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Never, _) | (_, Self::Never) => Self::Never,
            (Self::Always, test) | (test, Self::Always) => test,
            (Self::If(one), Self::If(other)) => Self::If(binary(BinaryOp::And, one, other)),
        }
    }

    fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Always, _) | (_, Self::Always) => Self::Always,
            (Self::Never, test) | (test, Self::Never) => test,
            (Self::If(one), Self::If(other)) => Self::If(binary(BinaryOp::Or, one, other)),
        }
    }
}

/// The expression with typed comparisons of arguments.
///
/// # Errors
///
/// If an argument is compared with something that it can never equal.
pub(crate) fn typed(expression: &Arc<Expr>) -> Result<Arc<Expr>, String> {
    let all = |all: &[Arc<Expr>]| all.iter().map(typed).collect::<Result<Vec<_>, _>>();
    Ok(Arc::new(match &**expression {
        Expr::BinaryOp { op, left, right } => return compared(*op, left, right),
        Expr::UnaryOp { op, expr } => Expr::UnaryOp {
            op: *op,
            expr: typed(expr)?,
        },
        Expr::GetAttr { expr, attr } => Expr::GetAttr {
            expr: typed(expr)?,
            attr: attr.clone(),
        },
        Expr::HasAttr { expr, attrs } => Expr::HasAttr {
            expr: typed(expr)?,
            attrs: attrs.clone(),
        },
        Expr::Like { expr, pattern } => Expr::Like {
            expr: typed(expr)?,
            pattern: pattern.clone(),
        },
        Expr::Is {
            expr,
            entity_type,
            in_expr,
        } => Expr::Is {
            expr: typed(expr)?,
            entity_type: entity_type.clone(),
            in_expr: in_expr.as_ref().map(typed).transpose()?,
        },
        Expr::IfThenElse {
            cond,
            then_expr,
            else_expr,
        } => condition(typed(cond)?, typed(then_expr)?, typed(else_expr)?),
        Expr::Set(elements) => Expr::Set(all(elements)?),
        Expr::Record(members) => {
            let typed = |(name, member): (&String, &Arc<Expr>)| Ok((name.clone(), typed(member)?));
            Expr::Record(members.iter().map(typed).collect::<Result<_, String>>()?)
        }
        other => other.clone(),
    }))
}

/// A binary operation whose operands must have fitting types if arguments are among them.
fn compared(op: BinaryOp, left: &Arc<Expr>, right: &Arc<Expr>) -> Result<Arc<Expr>, String> {
    let is_comparison = matches!(
        op,
        BinaryOp::Eq
            | BinaryOp::NotEq
            | BinaryOp::Contains
            | BinaryOp::ContainsAll
            | BinaryOp::ContainsAny
    );
    if !is_comparison || !(reads_arguments(left) || reads_arguments(right)) {
        return Ok(binary(op, typed(left)?, typed(right)?));
    }
    // Each branch may have another type.
    for (side, is_left) in [(left, true), (right, false)] {
        if let Expr::IfThenElse {
            cond,
            then_expr,
            else_expr,
        } = &**side
        {
            let branch = |branch| match is_left {
                true => compared(op, branch, right),
                false => compared(op, left, branch),
            };
            let (met, not_met) = (branch(then_expr)?, branch(else_expr)?);
            return Ok(Arc::new(condition(typed(cond)?, met, not_met)));
        }
    }
    let whole = binary(op, typed(left)?, typed(right)?);
    match fits(op, left, right) {
        Test::Always => Ok(whole),
        Test::If(test) => Ok(Arc::new(condition(test, whole, error()))),
        Test::Never => Err(
            "an argument is compared with something that has no type of arguments: compare it with \
             a text, a number, `true`, `false`, a list of one type, or an attribute"
                .to_owned(),
        ),
    }
}

/// Whether the operands of a comparison have fitting types.
fn fits(op: BinaryOp, left: &Expr, right: &Expr) -> Test {
    let of_all = |fits: &dyn Fn(&str) -> Test| {
        ALL.into_iter()
            .fold(Test::Never, |all, one| all.or(fits(one)))
    };
    match op {
        BinaryOp::Contains => of_all(&|one| is_list_of(left, one).and(is(right, one))),
        BinaryOp::ContainsAll | BinaryOp::ContainsAny => {
            of_all(&|one| is_list_of(left, one).and(is_list_of(right, one)))
        }
        _ => match (type_of(left), type_of(right)) {
            // Objects, too, have their members' types.
            (Some(left), Some(right)) => Test::If(binary(BinaryOp::Eq, left, right)),
            _ => of_all(&|one| {
                is(left, one)
                    .and(is(right, one))
                    .or(is_list_of(left, one).and(is_list_of(right, one)))
            }),
        },
    }
}

/// The expression for the type of an argument or of an object that the policy writes; `None` for
/// others.
fn type_of(expression: &Expr) -> Option<Arc<Expr>> {
    match expression {
        Expr::GetAttr { .. } => types_of(expression),
        Expr::Record(members) => {
            let of_member = |(name, member): (&String, &Arc<Expr>)| {
                let plain = ALL
                    .into_iter()
                    .find(|one| matches!(is(member, one), Test::Always));
                let of_member = match plain {
                    Some(one) => text(one),
                    None => type_of(member)?,
                };
                Some((name.clone(), of_member))
            };
            let members = members.iter().map(of_member).collect::<Option<_>>()?;
            Some(Arc::new(Expr::Record(members)))
        }
        _ => None,
    }
}

/// The place in [`TYPES`] for an argument, which is one below `context.arguments`; `None` for
/// another expression.
fn types_of(expression: &Expr) -> Option<Arc<Expr>> {
    let Expr::GetAttr { expr, attr } = expression else {
        return None;
    };
    let (expr, attr) = match &**expr {
        Expr::Var(Var::Context) if attr == ARGUMENTS => (Arc::clone(expr), TYPES.into()),
        inner => (types_of(inner)?, attr.clone()),
    };
    Some(Arc::new(Expr::GetAttr { expr, attr }))
}

/// Whether an expression has this type of single values.
fn is(expression: &Expr, wanted: &str) -> Test {
    let known = |known: &str| Test::from_bool(known == wanted);
    match expression {
        Expr::Literal(Literal::Bool(_))
        | Expr::HasAttr { .. }
        | Expr::Like { .. }
        | Expr::Is { .. } => known(BOOL),
        Expr::Literal(Literal::Long(_)) => known(LONG),
        Expr::Literal(Literal::String(_)) => known(TEXT),
        Expr::UnaryOp { op, .. } => known(match op {
            UnaryOp::Neg
            | UnaryOp::ToMilliseconds
            | UnaryOp::ToSeconds
            | UnaryOp::ToMinutes
            | UnaryOp::ToHours
            | UnaryOp::ToDays => LONG,
            UnaryOp::Decimal => DECIMAL,
            UnaryOp::Ip => "ip",
            UnaryOp::Datetime | UnaryOp::ToDate => "datetime",
            UnaryOp::Duration | UnaryOp::ToTime => "duration",
            _ => BOOL,
        }),
        Expr::BinaryOp { op, .. } => known(match op {
            BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul => LONG,
            BinaryOp::Offset => "datetime",
            BinaryOp::DurationSince => "duration",
            BinaryOp::GetTag => return Test::Never,
            _ => BOOL,
        }),
        Expr::GetAttr { expr, attr } => match types_of(expression) {
            Some(types) => Test::If(binary(BinaryOp::Eq, types, text(wanted))),
            None if !is_variable(expr) => Test::Never,
            None => known(match attr.as_str() {
                "address" => "ip",
                "time" => "datetime",
                "allScopes" => BOOL,
                "scopes" | "tags" => return Test::Never,
                hint if hint.ends_with("Hint") => BOOL,
                _ => TEXT,
            }),
        },
        _ => Test::Never,
    }
}

/// Whether an expression is a list whose elements have this type, or which has none.
fn is_list_of(expression: &Expr, wanted: &str) -> Test {
    match expression {
        Expr::Set(elements) => elements
            .iter()
            .fold(Test::Always, |all, element| all.and(is(element, wanted))),
        Expr::BinaryOp {
            op: BinaryOp::GetTag,
            ..
        } => Test::from_bool(wanted == TEXT),
        Expr::GetAttr { expr, attr } => match types_of(expression) {
            Some(types) => {
                let wanted = text(&format!("{LIST_OF}{wanted}"));
                let either = Arc::new(Expr::Set(vec![wanted, text(LIST_OF)]));
                Test::If(binary(BinaryOp::Contains, either, types))
            }
            None => Test::from_bool(
                is_variable(expr) && matches!(attr.as_str(), "scopes" | "tags") && wanted == TEXT,
            ),
        },
        _ => Test::Never,
    }
}

fn is_variable(expression: &Expr) -> bool {
    matches!(
        expression,
        Expr::Var(Var::Principal | Var::Resource | Var::Context)
    )
}

fn reads_arguments(expression: &Expr) -> bool {
    Reads::from_expression(expression).arguments.is_some()
}

pub(crate) fn binary(op: BinaryOp, left: Arc<Expr>, right: Arc<Expr>) -> Arc<Expr> {
    Arc::new(Expr::BinaryOp { op, left, right })
}

fn condition(cond: Arc<Expr>, then_expr: Arc<Expr>, else_expr: Arc<Expr>) -> Expr {
    Expr::IfThenElse {
        cond,
        then_expr,
        else_expr,
    }
}

pub(crate) fn text(text: &str) -> Arc<Expr> {
    Arc::new(Expr::Literal(Literal::String(text.into())))
}

/// An expression that cannot be evaluated.
fn error() -> Arc<Expr> {
    Arc::new(Expr::UnaryOp {
        op: UnaryOp::Not,
        expr: text("the argument has another type"),
    })
}
