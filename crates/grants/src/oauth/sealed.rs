//! Serializes secrets in records that are sealed before they are stored. Nothing else writes them.

use fanlight_config::settings::Secret;
use serde::{Deserialize, Deserializer, Serialize as _, Serializer};

pub(crate) fn serialize<S: Serializer>(secret: &Secret, serializer: S) -> Result<S::Ok, S::Error> {
    secret.expose().serialize(serializer)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Secret, D::Error> {
    String::deserialize(deserializer).map(Secret::new)
}

/// The same for a secret that may be absent.
pub(crate) mod optional {
    use fanlight_config::settings::Secret;
    use serde::{Deserialize, Deserializer, Serialize as _, Serializer};

    pub(crate) fn serialize<S: Serializer>(
        secret: &Option<Secret>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        secret.as_ref().map(Secret::expose).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Secret>, D::Error> {
        Ok(Option::<String>::deserialize(deserializer)?.map(Secret::new))
    }
}
