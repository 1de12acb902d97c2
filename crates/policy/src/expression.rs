//! Finds the attributes that the expressions of a policy read.

use std::collections::BTreeSet;
use std::sync::Arc;

use cedar_policy::pst::{BinaryOp, Clause, EntityUID, Expr, Literal, Template, UnaryOp, Var};

/// The member of the context that contains the arguments.
pub(crate) const ARGUMENTS: &str = "arguments";

/// The attributes that policies read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reads {
    /// The names of all attributes of anything except the resource.
    pub(crate) attributes: BTreeSet<Box<str>>,
    /// Whether the policies read hints of tools.
    pub(crate) hints: bool,
    /// Whether the policies read the action.
    pub(crate) action: bool,
    /// Whether the policies read claims.
    pub(crate) claims: bool,
    /// The arguments that the policies read; `None` for none.
    pub(crate) arguments: Option<Arguments>,
    /// Whether the policies read more of the resource than its server, tags and endpoint.
    pub(crate) resource: bool,
}

/// The arguments that are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Arguments {
    /// The arguments with these names.
    Named(BTreeSet<Box<str>>),
    /// All of them, as a whole.
    All,
}

impl Reads {
    /// The reads in the conditions of a policy.
    pub(crate) fn collect(policy: &Template) -> Self {
        let mut reads = Self::default();
        for Clause::When(expression) | Clause::Unless(expression) in policy.clauses() {
            reads.add(expression);
        }
        reads
    }

    /// The reads in an expression.
    pub(crate) fn from_expression(expression: &Expr) -> Self {
        let mut reads = Self::default();
        reads.add(expression);
        reads
    }

    /// Whether no arguments are read.
    pub(crate) fn no_arguments(&self) -> bool {
        self.arguments.is_none()
    }

    /// Whether all reads have the same value for all items and calls of a server.
    pub(crate) fn server_alone(&self) -> bool {
        self.arguments.is_none() && !self.resource
    }

    /// Adds the reads of another policy.
    pub(crate) fn and(&mut self, other: &Self) {
        self.attributes.extend(other.attributes.iter().cloned());
        self.claims |= other.claims;
        self.hints |= other.hints;
        self.action |= other.action;
        self.resource |= other.resource;
        match (&mut self.arguments, &other.arguments) {
            (_, None) => {}
            (Some(Arguments::Named(all)), Some(Arguments::Named(more))) => {
                all.extend(more.iter().cloned());
            }
            (arguments, Some(more)) => {
                *arguments = if arguments.is_none() {
                    Some(more.clone())
                } else {
                    Some(Arguments::All)
                };
            }
        }
    }

    fn argument(&mut self, name: Option<&str>) {
        let more = name.map_or(Arguments::All, |name| {
            Arguments::Named(BTreeSet::from([name.into()]))
        });
        self.and(&Self {
            arguments: Some(more),
            ..Self::default()
        });
    }

    fn attribute(&mut self, of: &Expr, name: &str) {
        self.hints |= name.ends_with("Hint");
        if !is_resource(of) {
            self.attributes.insert(name.into());
        }
    }

    fn add(&mut self, expression: &Expr) {
        match expression {
            // The context as a whole contains the arguments.
            Expr::Var(Var::Context) => self.argument(None),
            Expr::GetAttr { expr, attr } => {
                self.attribute(expr, attr);
                match (&**expr, attr.as_str()) {
                    (Expr::Var(Var::Context), ARGUMENTS) => self.argument(None),
                    (Expr::Var(Var::Context), _) => {}
                    (Expr::Var(Var::Resource), name) => self.resource |= !is_of_server(name),
                    (inner, name) if is_arguments(inner) => self.argument(Some(name)),
                    (inner, _) => self.add(inner),
                }
            }
            Expr::HasAttr { expr, attrs } => {
                attrs.iter().for_each(|attr| self.attribute(expr, attr));
                let mut attrs = attrs.iter();
                match &**expr {
                    Expr::Var(Var::Context)
                        if attrs.next().is_some_and(|first| first == ARGUMENTS) =>
                    {
                        self.argument(attrs.next().map(|name| name.as_str()));
                    }
                    Expr::Var(Var::Context) => {}
                    Expr::Var(Var::Resource) => {
                        self.resource |= attrs.next().is_none_or(|first| !is_of_server(first));
                    }
                    inner if is_arguments(inner) => {
                        self.argument(attrs.next().map(|name| name.as_str()));
                    }
                    inner => self.add(inner),
                }
            }
            Expr::BinaryOp {
                op: BinaryOp::In,
                left,
                right,
            } if is_resource(left) && are_places(right) => {}
            Expr::BinaryOp { op, left, right } => {
                self.claims |= matches!(op, BinaryOp::GetTag | BinaryOp::HasTag);
                self.add(left);
                self.add(right);
            }
            Expr::UnaryOp { expr, .. } | Expr::Like { expr, .. } => self.add(expr),
            Expr::Is { expr, in_expr, .. } => {
                self.add(expr);
                in_expr.iter().for_each(|inner| self.add(inner));
            }
            Expr::IfThenElse {
                cond,
                then_expr,
                else_expr,
            } => {
                [cond, then_expr, else_expr]
                    .into_iter()
                    .for_each(|inner| self.add(inner));
            }
            Expr::Set(all) => all.iter().for_each(|inner| self.add(inner)),
            Expr::Record(all) => all.values().for_each(|inner| self.add(inner)),
            Expr::Var(Var::Resource) => self.resource = true,
            Expr::Var(Var::Action) => self.action = true,
            Expr::Literal(_) | Expr::Var(_) | Expr::Slot(_) => {}
            // An expression of a later version of Cedar may read anything.
            _ => {
                self.argument(None);
                (self.resource, self.hints, self.action) = (true, true, true);
            }
        }
    }
}

fn is_arguments(expression: &Expr) -> bool {
    matches!(expression, Expr::GetAttr { expr, attr } if attr == ARGUMENTS && matches!(&**expr, Expr::Var(Var::Context)))
}

/// Whether the attribute has the same value for all items of a server.
fn is_of_server(attribute: &str) -> bool {
    matches!(attribute, "server" | "tags")
}

/// Whether an expression is the resource itself.
pub(crate) fn is_resource(expression: &Expr) -> bool {
    matches!(expression, Expr::Var(Var::Resource))
}

/// Whether an entity is a server or an endpoint, which contain items.
pub(crate) fn is_place(uid: &EntityUID) -> bool {
    matches!(uid.ty.to_string().as_str(), "Server" | "Endpoint")
}

fn are_places(expression: &Expr) -> bool {
    match expression {
        Expr::Literal(Literal::EntityUID(uid)) => is_place(uid),
        Expr::Set(all) => all.iter().all(|one| are_places(one)),
        _ => false,
    }
}

/// An expression for the type checker. Conditions on arguments are replaced, because their types
/// are unknown.
pub(crate) fn without_arguments(expression: &Arc<Expr>) -> Arc<Expr> {
    match &**expression {
        Expr::BinaryOp {
            op: op @ (BinaryOp::And | BinaryOp::Or),
            left,
            right,
        } => Arc::new(Expr::BinaryOp {
            op: *op,
            left: without_arguments(left),
            right: without_arguments(right),
        }),
        Expr::UnaryOp {
            op: UnaryOp::Not,
            expr,
        } => Arc::new(Expr::UnaryOp {
            op: UnaryOp::Not,
            expr: without_arguments(expr),
        }),
        Expr::IfThenElse {
            cond,
            then_expr,
            else_expr,
        } => Arc::new(Expr::IfThenElse {
            cond: without_arguments(cond),
            then_expr: without_arguments(then_expr),
            else_expr: without_arguments(else_expr),
        }),
        other if Reads::from_expression(other).arguments.is_some() => Arc::new(some_condition()),
        _ => Arc::clone(expression),
    }
}

/// A placeholder condition, which may be met or not.
fn some_condition() -> Expr {
    let era = Expr::GetAttr {
        expr: Arc::new(Expr::Var(Var::Context)),
        attr: "era".into(),
    };
    let modern = Expr::Literal(Literal::String("modern".into()));
    Expr::BinaryOp {
        op: BinaryOp::Eq,
        left: Arc::new(era),
        right: Arc::new(modern),
    }
}

/// The parts of a condition that all have to be met.
pub(crate) fn parts(expression: &Arc<Expr>) -> Vec<&Arc<Expr>> {
    match &**expression {
        Expr::BinaryOp {
            op: BinaryOp::And,
            left,
            right,
        } => parts(left).into_iter().chain(parts(right)).collect(),
        _ => vec![expression],
    }
}
