//! `Accept` headers of clients, one value per line. No input panics or allocates, and an additional
//! range removes nothing except by its weight.

use fanlight_protocol::accept::Accepts;

use crate::cost::{Cost, Linear, bounded};

pub(crate) fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let nothing = Cost {
        allocations: Linear(0, 0),
        bytes: Linear(0, 0),
        milliseconds: 10,
    };
    let accepts = bounded(data.len(), nothing, || Accepts::evaluate(|| text.lines()));
    let with_json = format!("{text}\n{}", fanlight_protocol::accept::JSON);
    let more = Accepts::evaluate(|| with_json.lines());
    assert_eq!(
        more,
        Accepts {
            json: true,
            events: accepts.events
        },
        "the exact type decides"
    );
    // The order of ranges does not matter.
    let reversed: Vec<&str> = text.lines().rev().collect();
    assert_eq!(Accepts::evaluate(|| reversed.iter().copied()), accepts);
}
