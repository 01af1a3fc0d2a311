//! Claims of ID tokens and of the user information of the provider (OpenID Connect Core, section 3.1.3.7).

use serde_json::{Map, Value};
use subtle::ConstantTimeEq as _;

use super::{CLOCK_SKEW, Failure, OidcProblem};

/// Longest time since an ID token was issued, in seconds: it was fetched a moment ago.
const AGE_MAX: i64 = 600;
/// Most groups of a person that are kept.
const GROUPS_MAX: usize = 1_000;
/// Longest name of a group that is kept, in characters.
const GROUP_CHARS_MAX: usize = 200;

pub(super) type Claims = Map<String, Value>;

/// What an ID token must be for.
pub(super) struct Expected<'a> {
    pub(super) issuer: &'a str,
    pub(super) client_id: &'a str,
    pub(super) nonce: &'a str,
    /// Time of the check, in seconds since 1970.
    pub(super) now: i64,
}

impl Expected<'_> {
    /// Checks the claims of an ID token whose signature is valid. Returns the subject.
    pub(super) fn check(&self, claims: &Claims) -> Result<String, Failure> {
        let refuse = |detail: &str| Err(Failure::invalid(format!("the ID token {detail}")));
        if text(claims, "iss") != Some(self.issuer) {
            return refuse("is of another issuer");
        }
        if !self.is_audience(claims) {
            return refuse("is for another client");
        }
        let nonce = text(claims, "nonce").unwrap_or_default();
        if !bool::from(nonce.as_bytes().ct_eq(self.nonce.as_bytes())) {
            return refuse("is of another login: its nonce is wrong");
        }
        let time = |name: &str| claims.get(name).and_then(Value::as_f64).map(|seconds| seconds as i64);
        match time("exp") {
            Some(end) if self.now < end.saturating_add(CLOCK_SKEW) => {}
            _ => return refuse("has expired"),
        }
        if time("nbf").is_some_and(|begin| self.now < begin.saturating_sub(CLOCK_SKEW)) {
            return refuse("is not valid yet: compare the clocks of the provider and of this server");
        }
        match time("iat") {
            Some(at) if at.saturating_sub(CLOCK_SKEW) > self.now => {
                return refuse(
                    "was issued in the future: compare the clocks of the provider and of this server",
                );
            }
            Some(at) if self.now.saturating_sub(at) <= AGE_MAX + CLOCK_SKEW => {}
            _ => return refuse("was issued too long ago"),
        }
        match text(claims, "sub") {
            Some(subject) if !subject.is_empty() => Ok(subject.to_owned()),
            _ => refuse("has no subject"),
        }
    }

    /// Returns whether a token is for this client. A token for several clients names the one that may use it.
    fn is_audience(&self, claims: &Claims) -> bool {
        let authorized = claims.get("azp");
        let is_ours = |value: &Value| value.as_str() == Some(self.client_id);
        let is_audience = match claims.get("aud") {
            Some(Value::Array(all)) => all.iter().any(is_ours) && (all.len() == 1 || authorized.is_some()),
            Some(one) => is_ours(one),
            None => false,
        };
        is_audience && authorized.is_none_or(is_ours)
    }
}

/// Returns a text claim.
pub(super) fn text<'a>(claims: &'a Claims, name: &str) -> Option<&'a str> {
    claims.get(name)?.as_str()
}

/// Returns the groups of a claim: a list of names, or one name. Dots in the name of the claim lead into objects, if no
/// claim has the whole name.
pub(super) fn groups(claims: &Claims, name: &str) -> Option<Vec<String>> {
    let names: Vec<&str> = match nested(claims, name)? {
        Value::Array(all) => all.iter().filter_map(Value::as_str).collect(),
        Value::String(one) => vec![one],
        _ => return None,
    };
    let is_valid = |name: &&str| {
        (1..=GROUP_CHARS_MAX).contains(&name.chars().count()) && !name.chars().any(char::is_control)
    };
    Some(names.into_iter().filter(is_valid).take(GROUPS_MAX).map(str::to_owned).collect())
}

fn nested<'a>(claims: &'a Claims, name: &str) -> Option<&'a Value> {
    if let Some(value) = claims.get(name) {
        return Some(value);
    }
    let (first, rest) = name.split_once('.')?;
    nested(claims.get(first)?.as_object()?, rest)
}

/// Returns the name for a new account.
///
/// A mail address counts only if the provider has verified it: otherwise a person could take that of another one.
pub(super) fn account_name(claims: &Claims, claim: &str) -> Result<String, Failure> {
    let name = text(claims, claim).map(str::trim).filter(|name| !name.is_empty()).ok_or_else(|| {
        Failure::new(OidcProblem::NoAccountName, format!("the person has no claim `{claim}`"))
    })?;
    let is_verified = match claims.get("email_verified") {
        Some(Value::Bool(is_verified)) => *is_verified,
        // Some providers send text.
        Some(Value::String(text)) => text == "true",
        _ => false,
    };
    if claim == "email" && !is_verified {
        let detail = "the provider has not verified the mail address of the person";
        return Err(Failure::new(OidcProblem::UnverifiedEmail, detail));
    }
    Ok(name.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: i64 = 1_780_000_000;

    fn claims(change: Value) -> Claims {
        let mut claims = json!({
            "iss": "https://id.example", "aud": "belfry", "sub": "s-1", "nonce": "n", "iat": NOW, "exp": NOW + 300,
        });
        claims.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        claims.as_object().unwrap().clone()
    }

    fn checked(change: Value) -> String {
        let expected = Expected { issuer: "https://id.example", client_id: "belfry", nonce: "n", now: NOW };
        expected.check(&claims(change)).unwrap_or_else(|failure| failure.to_string())
    }

    #[test]
    fn each_claim_of_an_id_token_is_checked() {
        assert_eq!(checked(json!({})), "s-1");
        for (change, refusal) in [
            (json!({"iss": "https://id.example/"}), "is of another issuer"),
            (json!({"iss": null}), "is of another issuer"),
            (json!({"aud": "other"}), "is for another client"),
            (json!({"aud": []}), "is for another client"),
            (json!({"aud": ["belfry", "other"]}), "is for another client"),
            (json!({"azp": "other"}), "is for another client"),
            (json!({"aud": ["belfry", "other"], "azp": "other"}), "is for another client"),
            (json!({"aud": "other", "azp": "belfry"}), "is for another client"),
            (json!({"nonce": "m"}), "is of another login: its nonce is wrong"),
            (json!({"nonce": null}), "is of another login: its nonce is wrong"),
            (json!({"exp": NOW - 60}), "has expired"),
            (json!({"exp": null}), "has expired"),
            (json!({"exp": "tomorrow"}), "has expired"),
            (json!({"iat": NOW - 661}), "was issued too long ago"),
            (json!({"iat": null}), "was issued too long ago"),
            (json!({"sub": ""}), "has no subject"),
            (json!({"sub": 1}), "has no subject"),
        ] {
            assert_eq!(checked(change.clone()), format!("the ID token {refusal}"), "{change}");
        }
        for (change, refusal) in [
            (json!({"nbf": NOW + 61}), "is not valid yet"),
            (json!({"iat": NOW + 61}), "was issued in the future"),
        ] {
            assert!(checked(change.clone()).contains(refusal), "{change}");
        }
        for accepted in [
            json!({"aud": ["belfry"]}),
            json!({"aud": ["belfry", "other"], "azp": "belfry"}),
            json!({"exp": NOW - 59}),
            json!({"iat": NOW + 60, "nbf": NOW + 60}),
        ] {
            assert_eq!(checked(accepted.clone()), "s-1", "{accepted}");
        }
    }

    #[test]
    fn groups_are_a_list_or_one_name() {
        let found = |value: Value, name: &str| groups(value.as_object().unwrap(), name);
        assert_eq!(found(json!({"groups": ["a", "b", 1, "", "c\u{7}"]}), "groups").unwrap(), ["a", "b"]);
        assert_eq!(found(json!({"groups": "a"}), "groups").unwrap(), ["a"]);
        assert_eq!(found(json!({"groups": {"a": true}}), "groups"), None);
        assert_eq!(found(json!({}), "groups"), None);
        let keycloak = json!({"realm_access": {"roles": ["dev"]}, "https://x.example/groups": ["ops"]});
        assert_eq!(found(keycloak.clone(), "realm_access.roles").unwrap(), ["dev"]);
        assert_eq!(found(keycloak, "https://x.example/groups").unwrap(), ["ops"]);
    }

    #[test]
    fn an_unverified_mail_address_names_no_account() {
        let named = |value: Value, claim: &str| {
            account_name(value.as_object().unwrap(), claim).map_err(|failure| failure.problem)
        };
        let mail = |verified: Value| json!({"email": "ann@example.com", "email_verified": verified});
        assert_eq!(named(mail(json!(true)), "email").unwrap(), "ann@example.com");
        assert_eq!(named(mail(json!("true")), "email").unwrap(), "ann@example.com");
        for unverified in [json!(false), json!(null), json!("false"), json!(1)] {
            assert_eq!(named(mail(unverified), "email"), Err(OidcProblem::UnverifiedEmail));
        }
        assert_eq!(named(mail(json!(true)), "preferred_username"), Err(OidcProblem::NoAccountName));
        assert_eq!(named(json!({"preferred_username": "ann"}), "preferred_username").unwrap(), "ann");
    }
}
