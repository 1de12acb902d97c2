//! Checks that a query names only exposed things: each selector's metric and labels, the known
//! values of labels with few values, and the remaining labels for grouping and output.

use std::collections::{BTreeMap, BTreeSet};

use fanlight_protocol::{Method, code};
use fanlight_telemetry::ErrorType;
use promql_parser::parser::{AggregateExpr, Expr, LabelModifier, VectorSelector};

pub(crate) type Labels = BTreeSet<String>;

/// The things that a query may name.
pub(crate) struct Checker {
    pub(crate) exposed: BTreeMap<String, Labels>,
    /// Names of metrics in queries so far.
    pub(crate) named: BTreeSet<String>,
}

impl Checker {
    /// Checks `query` and returns the possible labels of its result.
    pub(crate) fn query(&mut self, query: &str) -> Labels {
        let parsed =
            promql_parser::parser::parse(query).unwrap_or_else(|error| panic!("{error}: {query}"));
        self.labels(&parsed, query)
    }

    fn labels(&mut self, expression: &Expr, query: &str) -> Labels {
        match expression {
            Expr::VectorSelector(selector) => self.selector(selector, query),
            Expr::MatrixSelector(selector) => self.selector(&selector.vs, query),
            Expr::Subquery(inner) => self.labels(&inner.expr, query),
            Expr::Paren(inner) => self.labels(&inner.expr, query),
            Expr::Unary(inner) => self.labels(&inner.expr, query),
            Expr::NumberLiteral(_) | Expr::StringLiteral(_) | Expr::Extension(_) => Labels::new(),
            Expr::Aggregate(aggregate) => self.aggregate(aggregate, query),
            Expr::Binary(both) => {
                assert!(
                    both.modifier
                        .as_ref()
                        .is_none_or(|modifier| modifier.matching.is_none()),
                    "check it: {query}"
                );
                &self.labels(&both.lhs, query) | &self.labels(&both.rhs, query)
            }
            Expr::Call(call) => {
                let labels: Labels = call
                    .args
                    .args
                    .iter()
                    .flat_map(|arg| self.labels(arg, query))
                    .collect();
                if call.func.name == "histogram_quantile" {
                    assert!(
                        labels.contains("le"),
                        "the buckets' bounds are summed away: {query}"
                    );
                }
                labels
            }
        }
    }

    /// The labels after an aggregation: `topk` and the like keep all, the others keep those after
    /// `by`.
    fn aggregate(&mut self, aggregate: &AggregateExpr, query: &str) -> Labels {
        let inner = self.labels(&aggregate.expr, query);
        match &aggregate.modifier {
            Some(LabelModifier::Include(by)) => {
                let by: Labels = by.labels.iter().cloned().collect();
                assert!(
                    by.is_subset(&inner),
                    "grouped by {:?}, which nothing has: {query}",
                    &by - &inner
                );
                by
            }
            Some(LabelModifier::Exclude(without)) => {
                let without: Labels = without.labels.iter().cloned().collect();
                assert!(
                    without.is_subset(&inner),
                    "without {:?}, which nothing has: {query}",
                    &without - &inner
                );
                &inner - &without
            }
            None if aggregate.param.is_some() => inner,
            None => Labels::new(),
        }
    }

    fn selector(&mut self, selector: &VectorSelector, query: &str) -> Labels {
        let name = selector
            .name
            .as_deref()
            .unwrap_or_else(|| panic!("a selector without a metric: {query}"));
        let labels = self
            .exposed
            .get(name)
            .unwrap_or_else(|| panic!("{name} is not exposed: {query}"));
        for matcher in &selector.matchers.matchers {
            assert!(
                labels.contains(&matcher.name),
                "{name} has no label {}: {query}",
                matcher.name
            );
            for value in matcher
                .value
                .split('|')
                .filter(|value| !value.is_empty() && *value != ".*")
            {
                assert!(
                    is_value(&matcher.name, value),
                    "{} is never {value:?}: {query}",
                    matcher.name
                );
            }
        }
        self.named.insert(name.to_owned());
        labels.clone()
    }
}

fn is_value(label: &str, value: &str) -> bool {
    match label {
        "mcp_method_name" => !matches!(Method::from_name(value), Method::Other(_)),
        "error_type" => {
            let is_code = |info: &code::CodeInfo| info.code.to_string() == value;
            ErrorType::FIXED
                .iter()
                .any(|error| error.as_text() == value)
                || code::ALL.iter().any(is_code)
        }
        "network_io_direction" => ["receive", "transmit"].contains(&value),
        "otel_metric_overflow" => value == "true",
        "outcome" => value == "lost",
        "state" => ["up", "down"].contains(&value),
        "job" => value == "fanlight",
        other => panic!("say which values {other} can have"),
    }
}
