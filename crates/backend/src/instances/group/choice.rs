//! Chooses the endpoint for a request that is not bound to one.
//!
//! Usable endpoints come first. Two of them are drawn, and the less busy one gets the request ("the
//! power of two choices"). This is almost as good as comparing all endpoints. And unlike the least
//! busy one, it differs between gateways at the same moment.

use std::sync::Arc;

use fanlight_protocol::Method;
use smallvec::SmallVec;

use super::super::instance::{Instance, Readiness};
use crate::health::Item;

/// The numbers of the endpoints that a request has been to.
pub(super) type Tried = SmallVec<[u64; 4]>;

/// Equally suitable endpoints.
type Equals<'a> = SmallVec<[&'a Arc<Instance>; 8]>;

/// The suitability of an endpoint; the first is the best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Suitability {
    Ready,
    Connecting,
    Down,
}

impl Suitability {
    /// The suitability of an endpoint. `may_try` tells whether the request can show that the
    /// endpoint answers calls again.
    fn judge(readiness: Readiness, may_try: bool) -> Self {
        match readiness {
            Readiness::Trial if may_try => Self::Ready,
            Readiness::Ready => Self::Ready,
            Readiness::Connecting => Self::Connecting,
            Readiness::Trial | Readiness::Down => Self::Down,
        }
    }
}

/// The readiness of the best untried endpoint, if there is one.
pub(super) fn best(members: &[Arc<Instance>], tried: &[u64]) -> Option<Readiness> {
    open(members, tried).map(|member| member.readiness()).min()
}

/// The less busy of two endpoints drawn from the most suitable ones. If an endpoint's trial is due
/// and a request of this method can end it, that endpoint.
pub(super) fn better_of_two(
    members: &[Arc<Instance>],
    tried: &[u64],
    method: &Method,
) -> Option<Arc<Instance>> {
    let may_try = Item::is_of(method);
    let (fit, trial) = best_suited(members, tried, may_try);
    if let Some(trial) = trial.filter(|_| may_try) {
        return Some(Arc::clone(trial));
    }
    let first = fastrand::usize(..fit.len().max(1));
    let second =
        (first + 1 + fastrand::usize(..fit.len().saturating_sub(1).max(1))) % fit.len().max(1);
    let drawn = [first, second].into_iter().filter_map(|at| fit.get(at));
    drawn
        .min_by_key(|member| member.load.cost())
        .map(|member| Arc::clone(member))
}

/// The most suitable endpoint with the highest value. It stays the same while the most suitable
/// endpoints do.
pub(super) fn choose_by_value(
    members: &[Arc<Instance>],
    tried: &[u64],
    value: impl Fn(u64) -> u64,
) -> Option<Arc<Instance>> {
    let (fit, _) = best_suited(members, tried, true);
    fit.into_iter()
        .max_by_key(|member| value(member.number))
        .cloned()
}

/// The most suitable endpoints, and one of them whose trial is due.
fn best_suited<'a>(
    members: &'a [Arc<Instance>],
    tried: &[u64],
    may_try: bool,
) -> (Equals<'a>, Option<&'a Arc<Instance>>) {
    let (mut fit, mut trial, mut best) = (Equals::new(), None, Suitability::Down);
    for member in open(members, tried) {
        let readiness = member.readiness();
        let suitability = Suitability::judge(readiness, may_try);
        if suitability < best {
            (fit, trial, best) = (Equals::new(), None, suitability);
        }
        if suitability == best {
            trial = trial.or((readiness == Readiness::Trial).then_some(member));
            fit.push(member);
        }
    }
    (fit, trial)
}

fn open<'a>(
    members: &'a [Arc<Instance>],
    tried: &[u64],
) -> impl Iterator<Item = &'a Arc<Instance>> {
    members
        .iter()
        .filter(|member| !member.is_leaving() && !tried.contains(&member.number))
}
