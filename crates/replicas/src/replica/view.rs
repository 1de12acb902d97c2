//! The operators' view of replicas.

use std::time::SystemTime;

use fanlight_admin::{ReplicaView, ReplicasView, ValkeyView};
use fanlight_protocol::epoch;
use fanlight_telemetry::metrics::{Family, FamilyInfo};

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
        vec![
            CONNECTED.with_value(report.trouble.is_none().into()),
            REQUESTS.with(requests.map(|(outcome, count)| ([outcome], count))),
            MEMBERS.with_value(self.membership.members().len() as u64),
        ]
    }
}

const CONNECTED: FamilyInfo = FamilyInfo::gauge(
    "fanlight.valkey.connected",
    "1",
    "Whether Valkey can be reached.",
);

const REQUESTS: FamilyInfo = FamilyInfo::counter(
    "fanlight.valkey.requests",
    "{request}",
    "Requests to Valkey.",
    &["outcome"],
);

const MEMBERS: FamilyInfo = FamilyInfo::gauge(
    "fanlight.replicas",
    "{replica}",
    "Live replicas, as last seen.",
);

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
    epoch::since(at).as_secs_f64() * 1000.0
}
