//! Comparisons of URIs that also hold for the other forms of a URI.
//!
//! A server that ignores case serves `file:///PRIVATE/key` although a rule forbids
//! `file:///private/*`. So rules are rewritten when they are loaded: where a match restricts the
//! client, a comparison of the URI also holds for each of its [`uri_forms`]. Where a match permits,
//! the URI counts as it is.

use std::sync::Arc;

use cedar_policy::pst::{
    BinaryOp, Clause, Effect, EntityOrSlot, EntityUID, Expr, Literal, PatternElem,
    ResourceConstraint, Template, UnaryOp, Var,
};
use fanlight_canonical::PolicyItem;
use fanlight_canonical::rights::{URI_FORMS, folded, uri_forms};
use itertools::Itertools as _;

use crate::expression::is_resource;
use crate::typed::{binary, text};

/// The attributes of a resource with the forms of its URI. Their names are none that policies read.
const FORMS: [&str; URI_FORMS] = ["path of the URI", "place of the URI", "folded URI"];

/// The attributes with the forms of an item's URI; they are empty for an item without one.
pub(crate) fn forms(item: &PolicyItem<'_>) -> impl Iterator<Item = (&'static str, String)> {
    let forms = if has_uri(item.kind.as_str()) {
        uri_forms(&item.name)
    } else {
        <[String; URI_FORMS]>::default()
    };
    FORMS.into_iter().zip(forms)
}

/// The key by which a forbidden item is found: its URI is folded.
pub(crate) fn key(uid: &EntityUID) -> Box<str> {
    match split(uid) {
        Some((server, uri)) => format!("{server}/{}", folded(uri)).into(),
        None => uid.eid.as_str().into(),
    }
}

/// The resources and conditions of a policy, in which comparisons of URIs also hold for other forms
/// of them where that restricts the client. `None` if it compares no URIs so.
pub(crate) fn widened(policy: &Template) -> Option<(ResourceConstraint, Vec<Clause>)> {
    let forbids = policy.effect == Effect::Forbid;
    let clause = |clause: &Clause| match clause {
        Clause::When(condition) => Clause::When(wider(condition, forbids)),
        Clause::Unless(condition) => Clause::Unless(wider(condition, !forbids)),
    };
    let mut clauses = policy.clauses().iter().map(clause).collect_vec();
    let mut resource = policy.resource.clone();
    if let Some(uid) = scope_entity(&policy.resource).filter(|_| forbids)
        && let Some(is_it) = in_forms(&|form| is_named(uid, form))
    {
        resource = ResourceConstraint::Is(uid.ty.clone());
        clauses.insert(0, Clause::When(is_it));
    }
    let is_same = clauses.as_slice() == policy.clauses();
    (!is_same).then_some((resource, clauses))
}

/// The entity that a scope names.
pub(crate) fn scope_entity(resource: &ResourceConstraint) -> Option<&EntityUID> {
    match resource {
        ResourceConstraint::Eq(EntityOrSlot::Entity(uid))
        | ResourceConstraint::In(EntityOrSlot::Entity(uid))
        | ResourceConstraint::IsIn(_, EntityOrSlot::Entity(uid)) => Some(uid),
        _ => None,
    }
}

/// A condition that is met for more URIs if `is_wider`, else the condition itself.
fn wider(condition: &Arc<Expr>, is_wider: bool) -> Arc<Expr> {
    match &**condition {
        Expr::BinaryOp {
            op: op @ (BinaryOp::And | BinaryOp::Or),
            left,
            right,
        } => binary(*op, wider(left, is_wider), wider(right, is_wider)),
        Expr::UnaryOp {
            op: UnaryOp::Not,
            expr,
        } => not(wider(expr, !is_wider)),
        Expr::BinaryOp {
            op: BinaryOp::NotEq,
            left,
            right,
        } => {
            let equal = binary(BinaryOp::Eq, Arc::clone(left), Arc::clone(right));
            let wide = wider(&equal, !is_wider);
            if wide == equal {
                Arc::clone(condition)
            } else {
                not(wide)
            }
        }
        Expr::IfThenElse {
            cond,
            then_expr,
            else_expr,
        } => {
            let (met, unmet) = (wider(cond, is_wider), wider(cond, !is_wider));
            let (then_expr, else_expr) = (wider(then_expr, is_wider), wider(else_expr, is_wider));
            if met == unmet {
                Arc::new(Expr::IfThenElse {
                    cond: met,
                    then_expr,
                    else_expr,
                })
            } else {
                binary(
                    BinaryOp::Or,
                    binary(BinaryOp::And, met, then_expr),
                    binary(BinaryOp::And, not(unmet), else_expr),
                )
            }
        }
        _ if is_wider => match in_forms(&|form| compared(condition, form)) {
            Some(others) => binary(BinaryOp::Or, Arc::clone(condition), others),
            None => Arc::clone(condition),
        },
        _ => Arc::clone(condition),
    }
}

/// A comparison in any of the forms.
fn in_forms(compared: &dyn Fn(&Arc<Expr>) -> Option<Arc<Expr>>) -> Option<Arc<Expr>> {
    let form = |name: &str| {
        compared(&Arc::new(Expr::GetAttr {
            expr: Arc::new(Expr::Var(Var::Resource)),
            attr: name.into(),
        }))
    };
    let all = FORMS.into_iter().filter_map(form);
    all.reduce(|one, other| binary(BinaryOp::Or, one, other))
}

/// A comparison of the resource's name or of the resource, with one form instead.
fn compared(comparison: &Expr, form: &Arc<Expr>) -> Option<Arc<Expr>> {
    match comparison {
        Expr::Like { expr, pattern } if is_name(expr) => Some(Arc::new(Expr::Like {
            expr: Arc::clone(form),
            pattern: folded_pattern(pattern),
        })),
        Expr::BinaryOp {
            op: op @ BinaryOp::Eq,
            left: name,
            right: other,
        }
        | Expr::BinaryOp {
            op: op @ BinaryOp::Eq,
            left: other,
            right: name,
        } if is_name(name) => Some(binary(*op, Arc::clone(form), folded_texts(other))),
        Expr::BinaryOp {
            op: op @ BinaryOp::Contains,
            left,
            right,
        } if is_name(right) => Some(binary(*op, folded_texts(left), Arc::clone(form))),
        Expr::BinaryOp {
            op: BinaryOp::Eq | BinaryOp::In,
            left: resource,
            right: other,
        }
        | Expr::BinaryOp {
            op: BinaryOp::Eq,
            left: other,
            right: resource,
        }
        | Expr::Is {
            expr: resource,
            in_expr: Some(other),
            ..
        } if is_resource(resource) => is_any(other, form),
        _ => None,
    }
}

/// Whether the resource, by one form of its URI, is an entity or any of several.
fn is_any(entities: &Expr, form: &Arc<Expr>) -> Option<Arc<Expr>> {
    match entities {
        Expr::Literal(Literal::EntityUID(uid)) => is_named(uid, form),
        Expr::Set(all) => {
            let all = all.iter().filter_map(|one| is_any(one, form));
            all.reduce(|one, other| binary(BinaryOp::Or, one, other))
        }
        _ => None,
    }
}

/// Whether the resource is an entity, by one form of its URI; `None` for an entity without a URI.
fn is_named(uid: &EntityUID, form: &Arc<Expr>) -> Option<Arc<Expr>> {
    let (server, uri) = split(uid)?;
    let resource = || Arc::new(Expr::Var(Var::Resource));
    let is_kind = Arc::new(Expr::Is {
        expr: resource(),
        entity_type: uid.ty.clone(),
        in_expr: None,
    });
    let of_server = Arc::new(Expr::GetAttr {
        expr: resource(),
        attr: "server".into(),
    });
    let is_server = binary(BinaryOp::Eq, of_server, text(server));
    let is_uri = binary(BinaryOp::Eq, Arc::clone(form), text(&folded(uri)));
    let is_item = binary(BinaryOp::And, is_server, is_uri);
    Some(binary(BinaryOp::And, is_kind, is_item))
}

/// The server and the URI of an entity that has one.
fn split(uid: &EntityUID) -> Option<(&str, &str)> {
    has_uri(&uid.ty.to_string())
        .then(|| uid.eid.split_once('/'))
        .flatten()
}

/// Whether items of this kind are named by URIs.
fn has_uri(kind: &str) -> bool {
    matches!(kind, "Resource" | "Template" | "Skill")
}

fn is_name(expression: &Expr) -> bool {
    matches!(expression, Expr::GetAttr { expr, attr } if attr == "name" && is_resource(expr))
}

fn folded_texts(expression: &Arc<Expr>) -> Arc<Expr> {
    match &**expression {
        Expr::Literal(Literal::String(written)) => text(&folded(written)),
        Expr::Set(all) => Arc::new(Expr::Set(all.iter().map(folded_texts).collect())),
        _ => Arc::clone(expression),
    }
}

fn folded_pattern(pattern: &[PatternElem]) -> Vec<PatternElem> {
    let parts = pattern.split(|part| matches!(part, PatternElem::Wildcard));
    let folded = parts.map(|part| {
        let written = part.iter().filter_map(|one| match one {
            PatternElem::Char(one) => Some(*one),
            _ => None,
        });
        let chars = folded(&written.collect::<String>());
        chars.chars().map(PatternElem::Char).collect_vec()
    });
    let parts = folded.collect_vec();
    parts.join(&PatternElem::Wildcard)
}

fn not(expr: Arc<Expr>) -> Arc<Expr> {
    Arc::new(Expr::UnaryOp {
        op: UnaryOp::Not,
        expr,
    })
}
