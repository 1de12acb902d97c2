//! The operators' view of replicas.

use std::time::{SystemTime, UNIX_EPOCH};

use fanlight_admin::{ReplicaView, ReplicasView, ValkeyView};
use fanlight_telemetry::metrics::{Family, FamilyInfo, Shape, Values};

use super::Replicas;
use crate::Member;

impl fanlight_admin::Replicas for Replicas {
    fn view(&self) -> ReplicasView {
        let report = self.shared.report();
        ReplicasView {
            own: self.membership.id().to_owned(),
            epoch: self.membership.epoch(),
            valkey: ValkeyView {
                url: report.url,
                since_ms: millis(report.since),
                trouble: report.trouble.as_deref().map(str::to_owned),
            },
            members: self.membership.members().iter().map(replica).collect(),
        }
    }

    fn metrics(&self) -> Vec<Family> {
        let report = self.shared.report();
        let requests = [("answered", report.answered), ("failed", report.failed)];
        let requests =
            requests.map(|(outcome, count)| (vec![("outcome", outcome.to_owned())], value(count)));
        let members = u64::try_from(self.membership.members().len()).unwrap_or(u64::MAX);
        vec![
            Family {
                info: &CONNECTED,
                points: vec![(Vec::new(), value(u64::from(report.trouble.is_none())))],
            },
            Family {
                info: &REQUESTS,
                points: requests.into(),
            },
            Family {
                info: &MEMBERS,
                points: vec![(Vec::new(), value(members))],
            },
        ]
    }
}

const CONNECTED: FamilyInfo = FamilyInfo {
    name: "fanlight.valkey.connected",
    unit: "1",
    help: "Whether Valkey can be reached.",
    shape: Shape::Gauge,
    labels: &[],
};

const REQUESTS: FamilyInfo = FamilyInfo {
    name: "fanlight.valkey.requests",
    unit: "{request}",
    help: "Requests to Valkey.",
    shape: Shape::Counter,
    labels: &["outcome"],
};

const MEMBERS: FamilyInfo = FamilyInfo {
    name: "fanlight.replicas",
    unit: "{replica}",
    help: "Live replicas, as last seen.",
    shape: Shape::Gauge,
    labels: &[],
};

fn value(count: u64) -> Values {
    Values::Integer(i64::try_from(count).unwrap_or(i64::MAX))
}

fn replica(member: &Member) -> ReplicaView {
    ReplicaView {
        id: member.id.clone(),
        epoch: member.epoch,
        name: member.name.clone(),
        address: member.address.map(|address| address.to_string()),
        version: member.version.clone(),
        since_ms: millis(member.since),
        is_ending: member.is_ending,
    }
}

fn millis(at: SystemTime) -> f64 {
    at.duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs_f64()
        * 1000.0
}
