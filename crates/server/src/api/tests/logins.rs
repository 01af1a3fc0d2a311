//! Logins with passwords: invitations, sessions, throttling, cookies and what an attacker learns.
//!
//! The rules of changes are tested in the crate `access`, delays in `auth::throttle`, and hashes in `auth::password`.

use std::net::IpAddr;

use axum::body::Body;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, COOKIE, HOST, ORIGIN, SET_COOKIE};
use axum::http::{Method, Request, StatusCode};
use serde_json::{Value, json};

use super::{Answer, World};
use crate::auth::TotpSecret;
use crate::clock::{Clock as _, SystemClock};
use crate::config::Exposure;
use crate::listener::Peer;

const PASSWORD: &str = "correct horse battery staple";
const OTHER: &str = "four other random words";

impl World {
    /// Creates an account, and returns the secret of its invitation.
    async fn invited(&self, name: &str) -> String {
        self.account(name, &[("viewer", "*")]).await;
        self.invite(name, json!({})).await
    }

    async fn invite(&self, name: &str, body: Value) -> String {
        let answer = self.post(&format!("/api/v1/accounts/{name}/invitation"), body).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text());
        assert_eq!(answer.header("cache-control"), "no-store");
        answer.json()["secret"].as_str().unwrap().to_owned()
    }

    /// Creates an account with the password [`PASSWORD`].
    async fn with_password(&self, name: &str) {
        let secret = self.invited(name).await;
        let accepted =
            self.anonymous("/api/v1/invitations/accept", json!({"secret": secret, "password": PASSWORD}));
        assert_eq!(accepted.await.status, StatusCode::OK);
    }

    /// Sends a request without a token.
    async fn anonymous(&self, path: &str, body: Value) -> Answer {
        self.post_from(path, body, &[], 1).await
    }

    /// Sends a request without a token from an address.
    async fn post_from(&self, path: &str, body: Value, headers: &[(&str, &str)], address: u8) -> Answer {
        let request =
            Request::post(path).header(HOST, "localhost:7070").header(CONTENT_TYPE, "application/json");
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let request = request.extension(Peer::Connection(IpAddr::from([10, 0, 0, address])));
        self.send(request.body(Body::from(body.to_string())).unwrap()).await
    }

    async fn log_in(&self, account: &str, password: &str) -> Answer {
        self.anonymous("/api/v1/login", json!({"account": account, "password": password})).await
    }

    /// Logs in and returns the secret of the session.
    async fn session(&self, account: &str, password: &str) -> String {
        let answer = self.log_in(account, password).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
        answer.json()["secret"].as_str().unwrap().to_owned()
    }

    async fn is_accepted(&self, token: &str) -> bool {
        self.get_as(token, "/api/v1/me").await.status == StatusCode::OK
    }

    /// Returns action, outcome, actor and code of the entries of the audit log about logins, oldest first.
    async fn recorded(&self) -> Vec<String> {
        self.services.audit.close().await;
        let entries = self.get("/api/v1/audit").await.json()["items"].as_array().unwrap().clone();
        let is_login = |entry: &&Value| {
            ["log_in", "accept_invitation", "change_password"].contains(&entry["action"].as_str().unwrap())
        };
        let text = |entry: &Value, field: &str| entry[field].as_str().unwrap_or("-").to_owned();
        let shown = entries.iter().rev().filter(is_login);
        shown
            .map(|it| ["action", "outcome", "actor", "code"].map(|field| text(it, field)).join(" "))
            .collect()
    }
}

/// The headers of a page of this server.
const OWN_PAGE: &[(&str, &str)] = &[("origin", "http://localhost:7070"), ("x-belfry-csrf", "1")];

fn cookies(answer: &Answer) -> Vec<String> {
    answer.headers.get_all(SET_COOKIE).iter().map(|value| value.to_str().unwrap().to_owned()).collect()
}

/// Returns the `Cookie` header of a browser that has received these cookies.
fn sent(cookies: &[String]) -> String {
    cookies.iter().map(|cookie| cookie.split(';').next().unwrap()).collect::<Vec<_>>().join("; ")
}

/// H2. From the invitation to the logout.
#[tokio::test]
async fn a_person_sets_a_password_logs_in_and_logs_out() {
    let world = World::new().await;
    let secret = world.invited("ann").await;
    assert!(secret.starts_with("bf_invite_"), "{secret}");
    let checked = world.anonymous("/api/v1/invitations/check", json!({"secret": secret})).await.json();
    assert_eq!((&checked["account"], &checked["has_password"]), (&json!("ann"), &json!(false)));
    let accept = json!({"secret": secret, "password": PASSWORD});
    let accepted = world.anonymous("/api/v1/invitations/accept", accept.clone()).await;
    assert_eq!(accepted.status, StatusCode::OK, "{}", accepted.text());
    assert_eq!(accepted.json()["me"]["has_password"], true);

    let answer = world.log_in("ann", PASSWORD).await.json();
    let session = answer["secret"].as_str().unwrap();
    assert_eq!(
        (&answer["session"]["session"], &answer["session"]["description"]),
        (&json!(true), &json!("10.0.0.1"))
    );
    let me = world.get_as(session, "/api/v1/me").await.json();
    assert_eq!(
        (&me["name"], &me["session"], &me["has_password"]),
        (&json!("ann"), &json!(true), &json!(true))
    );
    let login = world.get("/api/v1/accounts/ann").await.json()["login"].clone();
    assert_eq!(login["sessions"], 2);
    assert!(login["last_login_at"].is_string() && login["password_set_at"].is_string(), "{login}");
    let tokens = "/api/v1/tokens?name=ann&kind=user";
    for (filter, count) in [("", 3), ("&session=true", 2), ("&session=false", 1)] {
        assert_eq!(world.get(&format!("{tokens}{filter}")).await.column("id").len(), count, "{filter}");
    }

    let out = world.send_as(session, Method::DELETE, "/api/v1/session", json!({})).await;
    assert_eq!(out.status, StatusCode::NO_CONTENT);
    assert!(!world.is_accepted(session).await);
    assert_eq!(world.recorded().await, ["accept_invitation allowed ann -", "log_in allowed ann -"]);
}

/// A logout with a token does not revoke the token.
#[tokio::test]
async fn a_logout_ends_only_sessions() {
    let world = World::new().await;
    world.send_as(&world.admin, Method::DELETE, "/api/v1/session", json!({})).await;
    assert!(world.is_accepted(&world.admin).await);
}

#[tokio::test]
async fn an_invitation_works_once_even_for_two_requests_at_the_same_time() {
    let world = World::new().await;
    let secret = world.invited("ann").await;
    let accept = |password| {
        world.anonymous("/api/v1/invitations/accept", json!({"secret": secret, "password": password}))
    };
    let (one, other) = tokio::join!(accept(PASSWORD), accept(OTHER));
    let mut statuses = [one.status.as_u16(), other.status.as_u16()];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 404]);
    let (right, wrong) = if one.status == StatusCode::OK { (PASSWORD, OTHER) } else { (OTHER, PASSWORD) };
    assert_eq!(world.log_in("ann", right).await.status, StatusCode::OK);
    assert_eq!(world.log_in("ann", wrong).await.code(), "401 login_failed");
    assert_eq!(accept("a third random password").await.code(), "404 invitation_not_found");
    let check = world.anonymous("/api/v1/invitations/check", json!({"secret": secret})).await;
    assert_eq!(check.code(), "404 invitation_not_found");
}

#[tokio::test]
async fn a_wrong_replaced_or_revoked_invitation_is_refused() {
    let world = World::new().await;
    let first = world.invited("ann").await;
    let second = world.invite("ann", json!({"expires_in": "1h"})).await;
    let check = |secret: String| world.anonymous("/api/v1/invitations/check", json!({"secret": secret}));
    assert_eq!(check(first).await.code(), "404 invitation_not_found");
    assert_eq!(check(second.clone()).await.status, StatusCode::OK);
    let forged = crate::auth::token::generate_invitation();
    for text in [forged, world.admin.clone(), "bf_invite_x".into(), String::new()] {
        assert_eq!(check(text).await.code(), "404 invitation_not_found");
    }
    assert_eq!(world.get_as(&second, "/api/v1/me").await.code(), "401 unauthenticated");
    let revoked = world.delete("/api/v1/accounts/ann/invitation").await;
    assert_eq!(revoked.status, StatusCode::NO_CONTENT);
    assert_eq!(check(second).await.code(), "404 invitation_not_found");
    let too_long = world.post("/api/v1/accounts/ann/invitation", json!({"expires_in": "1000h"})).await;
    assert_eq!(too_long.code(), "422 invalid_spec");
}

#[tokio::test]
async fn a_password_has_a_length_and_is_not_the_name_of_the_account() {
    let world = World::new().await;
    let secret = world.invited("ann.lee@example.com").await;
    let accept = |password: String| {
        world.anonymous("/api/v1/invitations/accept", json!({"secret": secret, "password": password}))
    };
    for password in
        ["short".to_owned(), "x y".repeat(50), "Ann.Lee@example.com".into(), "passwordpassword".into()]
    {
        let answer = accept(password).await;
        assert_eq!(answer.code(), "422 invalid_spec");
        assert_eq!(answer.json()["errors"][0]["path"], "password");
    }
    let huge = accept("x".repeat(100_000)).await;
    assert_eq!(huge.code(), "413 body_too_large");
    assert_eq!(accept("密码要长一点，也要好记一点".into()).await.status, StatusCode::OK);
}

/// The response must not tell which accounts exist. The time is the same too: each login computes one hash.
#[tokio::test]
async fn unknown_disabled_and_wrong_logins_get_the_same_response() {
    let world = World::new().await;
    world.with_password("ann").await;
    world.with_password("off").await;
    world.account("without", &[]).await;
    world.json(Method::PATCH, "/api/v1/accounts/off", json!({"disabled": true}), &[]).await;
    let mut responses = Vec::new();
    for (account, password) in [
        ("ann", OTHER),
        ("off", PASSWORD),
        ("without", PASSWORD),
        ("unknown", PASSWORD),
        ("", ""),
        ("\u{1b}[31m", "x"),
    ] {
        let answer = world.log_in(account, password).await;
        let mut body = answer.json();
        body["instance"] = Value::Null;
        responses.push((answer.status, answer.headers.len(), body));
    }
    assert_eq!(responses[0].0, StatusCode::UNAUTHORIZED);
    assert!(responses.iter().all(|it| *it == responses[0]), "{responses:#?}");
    let recorded = world.recorded().await;
    assert!(recorded.contains(&"log_in denied ann login_failed".to_owned()), "{recorded:?}");
    assert!(recorded.contains(&"log_in denied (unknown) login_failed".to_owned()), "{recorded:?}");
}

#[tokio::test]
async fn no_password_or_secret_is_in_a_list_or_in_the_audit_log() {
    let world = World::new().await;
    let secret = world.invited("ann").await;
    let accept = json!({"secret": secret, "password": PASSWORD});
    world.anonymous("/api/v1/invitations/accept", accept).await;
    let pending = world.invite("ann", json!({})).await;
    let session = world.session("ann", PASSWORD).await;
    // A password in the field of the account.
    world.log_in(OTHER, "x").await;
    let change = json!({"current": PASSWORD, "new": OTHER});
    let changed = world.send_as(&session, Method::PUT, "/api/v1/me/password", change).await;
    assert_eq!(changed.status, StatusCode::NO_CONTENT, "{}", changed.text());
    let recorded = world.recorded().await;
    assert_eq!(recorded.last().unwrap(), "change_password allowed ann -", "{recorded:?}");
    let mut texts = Vec::new();
    for path in ["audit", "accounts", "accounts/ann", "tokens?status=active,expired,revoked"] {
        texts.push(world.get(&format!("/api/v1/{path}")).await.text());
    }
    let text = texts.join("\n");
    for hidden in [
        PASSWORD,
        OTHER,
        "argon2",
        "$v=19",
        &secret[25..60],
        &pending[25..60],
        &session[25..60],
        ".hash",
        "\"hash\":\"$",
    ] {
        assert!(!text.contains(hidden), "{hidden}");
    }
    assert!(text.contains("set_at"), "the change itself is recorded");
}

#[tokio::test]
async fn a_new_password_ends_all_other_sessions_and_the_invitation() {
    let world = World::new().await;
    world.with_password("ann").await;
    let (own, other) = (world.session("ann", PASSWORD).await, world.session("ann", PASSWORD).await);
    let link = world.invite("ann", json!({})).await;
    let change = |current: &str, new: &str| {
        let body = json!({"current": current, "new": new});
        let (world, own) = (&world, &own);
        async move { world.send_as(own, Method::PUT, "/api/v1/me/password", body).await }
    };
    let wrong = change(OTHER, "a third random password").await;
    assert_eq!(
        (wrong.code().as_str(), &wrong.json()["errors"][0]["path"]),
        ("422 invalid_spec", &json!("current"))
    );
    assert_eq!(change(PASSWORD, "short").await.json()["errors"][0]["path"], "new");
    assert!(world.is_accepted(&other).await);
    assert_eq!(change(PASSWORD, OTHER).await.status, StatusCode::NO_CONTENT);
    assert!(world.is_accepted(&own).await);
    assert!(!world.is_accepted(&other).await);
    let check = world.anonymous("/api/v1/invitations/check", json!({"secret": link})).await;
    assert_eq!(check.code(), "404 invitation_not_found");
    let admin = json!({"current": PASSWORD, "new": OTHER});
    let admin = world.send_as(&world.admin, Method::PUT, "/api/v1/me/password", admin).await;
    assert_eq!(admin.code(), "409 no_password_login");
}

#[tokio::test]
async fn a_reset_ends_the_password_at_once_and_an_invitation_alone_does_not() {
    let world = World::new().await;
    world.with_password("ann").await;
    let session = world.session("ann", PASSWORD).await;
    world.invite("ann", json!({})).await;
    assert!(
        world.is_accepted(&session).await && world.log_in("ann", PASSWORD).await.status == StatusCode::OK
    );
    world.invite("ann", json!({"reset": true})).await;
    assert!(!world.is_accepted(&session).await);
    assert_eq!(world.log_in("ann", PASSWORD).await.code(), "401 login_failed");
}

#[tokio::test]
async fn sessions_end_with_their_account_and_when_an_administrator_ends_them() {
    let world = World::new().await;
    world.with_password("ann").await;
    let path = "/api/v1/accounts/ann";
    let session = world.session("ann", PASSWORD).await;
    world.json(Method::PATCH, path, json!({"disabled": true}), &[]).await;
    assert!(!world.is_accepted(&session).await);
    world.json(Method::PATCH, path, json!({"disabled": false}), &[]).await;
    assert!(world.is_accepted(&session).await);
    let stranger = world.account("stranger", &[("admin", "team")]).await;
    let refused = world.send_as(&stranger, Method::DELETE, &format!("{path}/sessions"), json!({})).await;
    assert_eq!(refused.code(), "403 forbidden");
    let ended = world.delete(&format!("{path}/sessions")).await;
    assert_eq!(ended.status, StatusCode::NO_CONTENT);
    assert!(!world.is_accepted(&session).await);
    let session = world.session("ann", PASSWORD).await;
    world.delete(path).await;
    assert!(!world.is_accepted(&session).await);
    world.account("ann", &[]).await;
    assert_eq!(world.log_in("ann", PASSWORD).await.code(), "401 login_failed", "another account of the name");
}

#[tokio::test]
async fn only_administrators_of_everything_invite_and_only_people_are_invited() {
    let world = World::new().await;
    world.account("ann", &[("viewer", "team")]).await;
    world.post("/api/v1/accounts", json!({"name": "ci", "kind": "service"})).await;
    let lead = world.account("lead", &[("admin", "team")]).await;
    let invite = |token: String, name: &str| {
        let (world, path) = (&world, format!("/api/v1/accounts/{name}/invitation"));
        async move { world.send_as(&token, Method::POST, &path, json!({})).await.code() }
    };
    assert_eq!(invite(lead.clone(), "ann").await, "403 forbidden");
    assert_eq!(invite(lead, "lead").await, "403 forbidden");
    assert_eq!(invite(world.admin.clone(), "ci").await, "409 no_password_login");
    assert_eq!(invite(world.admin.clone(), "unknown").await, "404 account_not_found");
}

#[tokio::test]
async fn guesses_are_delayed_and_a_known_browser_is_not_locked_out() {
    let world = World::new().await;
    world.with_password("ann").await;
    let body = |password: &str| json!({"account": "ann", "password": password, "cookie": true});
    let logged_in = world.post_from("/api/v1/login", body(PASSWORD), OWN_PAGE, 9).await;
    let browser = sent(&cookies(&logged_in));
    // At the same time: each attempt counts from its start.
    let guess = |password: &'static str, headers: &'static [(&'static str, &'static str)]| {
        let world = &world;
        let body = json!({"account": "ann", "password": password});
        async move { world.post_from("/api/v1/login", body, headers, 1).await }
    };
    let mut guesses: Vec<_> = (0..20).map(|_| guess(OTHER, &[])).collect();
    guesses.push(guess(PASSWORD, &[]));
    // An address that the client claims is not believed.
    guesses.push(guess(PASSWORD, &[("x-forwarded-for", "10.9.9.9")]));
    let answers = futures::future::join_all(guesses).await;
    let codes: Vec<_> = answers.iter().map(Answer::code).collect();
    assert!(codes[..5].iter().all(|code| code == "401 login_failed"), "{codes:?}");
    assert!(codes[5..].iter().all(|code| code == "429 login_throttled"), "{codes:?}");
    let throttled = &answers[20];
    assert_eq!(throttled.header("retry-after"), "1");
    insta::assert_snapshot!(throttled.json()["detail"].as_str().unwrap(), @"too many failed logins: retry in 1 s");
    let elsewhere =
        world.post_from("/api/v1/login", json!({"account": "ann", "password": PASSWORD}), &[], 2).await;
    assert_eq!(elsewhere.status, StatusCode::OK, "{}", elsewhere.text());
    let headers = [OWN_PAGE, &[("cookie", browser.as_str())]].concat();
    let known = world.post_from("/api/v1/login", body(PASSWORD), &headers, 1).await;
    assert_eq!(known.status, StatusCode::OK, "{}", known.text());
    let recorded = world.recorded().await;
    assert!(recorded.contains(&"log_in denied ann login_throttled".to_owned()), "{recorded:?}");
}

#[tokio::test]
async fn behind_a_proxy_the_address_is_the_one_that_the_proxy_wrote() {
    let world = World::with(|config| config.exposure = Exposure::BehindProxy).await;
    world.with_password("ann").await;
    let log_in = |password: &'static str, chain: &'static str| {
        let body = json!({"account": "ann", "password": password});
        let world = &world;
        async move { world.post_from("/api/v1/login", body, &[("x-forwarded-for", chain)], 1).await }
    };
    // The client writes the first address, the proxy the last one.
    let chains =
        ["6.6.6.1, 10.1.1.1", "6.6.6.2, 10.1.1.1", "6.6.6.3, 10.1.1.1", "10.1.1.1", "7.7.7.7,10.1.1.1"];
    let mut guesses: Vec<_> = chains.into_iter().map(|chain| log_in(OTHER, chain)).collect();
    guesses.push(log_in(PASSWORD, "8.8.8.8, 10.1.1.1"));
    let answers = futures::future::join_all(guesses).await;
    assert!(answers[..5].iter().all(|answer| answer.code() == "401 login_failed"));
    assert_eq!(answers[5].code(), "429 login_throttled");
    assert_eq!(log_in(PASSWORD, "10.1.1.1, 10.1.1.2").await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_cookie_is_only_for_pages_of_this_server() {
    let world = World::new().await;
    world.with_password("ann").await;
    let body = json!({"account": "ann", "password": PASSWORD, "cookie": true});
    let with = |headers: &'static [(&'static str, &'static str)]| {
        let (world, body) = (&world, body.clone());
        async move { world.post_from("/api/v1/login", body, headers, 1).await }
    };
    for foreign in [
        &[][..],
        &[("origin", "http://localhost:7070")],
        &[("x-belfry-csrf", "1")],
        &[("origin", "http://evil.example"), ("x-belfry-csrf", "1")],
        &[("origin", "null"), ("x-belfry-csrf", "1")],
        &[("sec-fetch-site", "cross-site"), ("origin", "http://localhost:7070"), ("x-belfry-csrf", "1")],
    ] {
        let refused = with(foreign).await;
        assert_eq!(refused.code(), "403 cross_site", "{foreign:?}");
        assert_eq!(cookies(&refused), [""; 0]);
    }
    // A page of another site cannot use up the attempts of its visitor either.
    let program = json!({"account": "ann", "password": OTHER});
    let refused = world.post_from("/api/v1/login", program, &[("origin", "http://evil.example")], 1).await;
    assert_eq!(refused.code(), "403 cross_site");
    let answer = with(OWN_PAGE).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    assert_eq!(answer.json()["secret"], Value::Null, "no script can read the session");
    let set = cookies(&answer);
    assert!(set[0].starts_with("belfry_7070=") && set[1].starts_with("belfry_7070_browser="), "{set:?}");
    for cookie in &set {
        assert!(cookie.contains("; Path=/; HttpOnly; SameSite=Strict"), "{cookie}");
    }
    assert!(!set[0].contains("Max-Age"), "the session ends with the browser");
    let remembered = json!({"account": "ann", "password": PASSWORD, "cookie": true, "remember": true});
    let remembered = world.post_from("/api/v1/login", remembered, OWN_PAGE, 1).await;
    assert!(cookies(&remembered)[0].contains("Max-Age=604"), "{:?}", cookies(&remembered));
}

/// An attacker who sets a cookie in the victim's browser before the login does not know the session after it.
#[tokio::test]
async fn a_login_starts_a_new_session_and_a_logout_ends_it_on_the_server() {
    let world = World::new().await;
    world.with_password("ann").await;
    world.with_password("mallory").await;
    let log_in = |account: &'static str, cookie: String| {
        let body = json!({"account": account, "password": PASSWORD, "cookie": true});
        let world = &world;
        async move {
            let headers = [OWN_PAGE, &[("cookie", cookie.as_str())]].concat();
            sent(&cookies(&world.post_from("/api/v1/login", body, &headers, 1).await))
        }
    };
    let planted = log_in("mallory", String::new()).await;
    let own = log_in("ann", planted.clone()).await;
    assert_ne!(planted, own);
    let get = |method: Method, path: &'static str, cookie: String| {
        let request = Request::builder().method(method).uri(path).header(HOST, "localhost:7070");
        let request = request
            .header(COOKIE, cookie)
            .header(ORIGIN, "http://localhost:7070")
            .header("x-belfry-csrf", "1");
        world.send(request.body(Body::empty()).unwrap())
    };
    assert_eq!(get(Method::GET, "/api/v1/me", own.clone()).await.json()["name"], "ann");
    assert_eq!(get(Method::GET, "/api/v1/me", planted).await.json()["name"], "mallory");
    let out = get(Method::DELETE, "/api/v1/session", own.clone()).await;
    assert!(cookies(&out)[0].contains("Max-Age=0"));
    assert_eq!(get(Method::GET, "/api/v1/me", own).await.code(), "401 unauthenticated");
}

#[tokio::test]
async fn the_cookie_of_a_session_in_use_is_renewed_until_its_token_ends() {
    use crate::auth::{SessionClass, Sessions};
    let world = World::new().await;
    world.with_password("ann").await;
    let answer = world.log_in("ann", PASSWORD).await.json();
    let id = answer["session"]["id"].as_str().unwrap();
    let sessions = Sessions::new(world.services.keys.sessions);
    let now = SystemClock.now();
    let get = |left: model::Duration| {
        let value = sessions.open(id, now + left, Some(SessionClass::Short));
        let request = Request::get("/api/v1/me").header(HOST, "localhost:7070");
        world.send(request.header(COOKIE, format!("belfry_7070={value}")).body(Body::empty()).unwrap())
    };
    let hours = model::Duration::from_hours;
    let renewed = get(hours(1)).await;
    let [cookie] = &cookies(&renewed)[..] else { panic!("{:?}", cookies(&renewed)) };
    let value = cookie.split(['=', ';']).nth(1).unwrap();
    let found = sessions.read(value, now).unwrap();
    let left = found.until.as_millis() - now.as_millis();
    assert!((8 * 3_600_000..9 * 3_600_000).contains(&left), "{found:?}");
    assert_eq!(cookies(&get(hours(8)).await), [""; 0]);
    assert_eq!(get(hours(0)).await.code(), "401 unauthenticated");
}

/// The header `Authorization` has precedence, so a page cannot mix two callers.
#[tokio::test]
async fn a_password_is_no_token() {
    let world = World::new().await;
    world.with_password("ann").await;
    let request = Request::get("/api/v1/me").header(HOST, "localhost:7070");
    let request = request.header(AUTHORIZATION, "Basic YW5uOmNvcnJlY3QgaG9yc2UgYmF0dGVyeSBzdGFwbGU=");
    let answer = world.send(request.body(Body::empty()).unwrap()).await;
    assert_eq!(answer.code(), "401 unauthenticated");
}

impl World {
    /// Turns on the second factor of an account with a session; returns the secret and the recovery codes.
    async fn with_totp(&self, session: &str) -> (TotpSecret, Vec<String>) {
        let started =
            self.send_as(session, Method::POST, "/api/v1/me/totp", json!({"password": PASSWORD})).await;
        assert_eq!(started.status, StatusCode::OK, "{}", started.text());
        let started = started.json();
        let secret = TotpSecret::parse(started["secret"].as_str().unwrap()).unwrap();
        assert!(started["uri"].as_str().unwrap().contains(started["secret"].as_str().unwrap()));
        // The code of the step before, so that the present one can be used for a login.
        let body = json!({"setup": started["setup"], "code": secret.code_at(now_seconds() - 30)});
        let set = self.send_as(session, Method::PUT, "/api/v1/me/totp", body).await;
        assert_eq!(set.status, StatusCode::OK, "{}", set.text());
        let codes = set.json()["codes"].as_array().unwrap().clone();
        (secret, codes.iter().map(|code| code.as_str().unwrap().to_owned()).collect())
    }

    async fn log_in_with(&self, account: &str, password: &str, code: &str) -> Answer {
        self.anonymous("/api/v1/login", json!({"account": account, "password": password, "code": code})).await
    }
}

fn now_seconds() -> u64 {
    u64::try_from(SystemClock.now().as_millis()).unwrap() / 1_000
}

/// H2. RFC 6238.
#[tokio::test]
async fn a_second_factor_is_asked_for_after_the_password_and_each_code_works_once() {
    let world = World::new().await;
    world.with_password("ann").await;
    let session = world.session("ann", PASSWORD).await;
    let (secret, recovery) = world.with_totp(&session).await;
    assert_eq!(world.get_as(&session, "/api/v1/me").await.json()["has_totp"], true);
    assert!(world.get("/api/v1/accounts/ann").await.json()["login"]["totp_set_at"].is_string());

    assert_eq!(
        world.log_in("ann", OTHER).await.code(),
        "401 login_failed",
        "the second factor is not revealed"
    );
    assert_eq!(world.log_in_with("ann", OTHER, "123456").await.code(), "401 login_failed");
    assert_eq!(world.log_in("ann", PASSWORD).await.code(), "401 second_factor_required");
    assert_eq!(world.log_in_with("ann", PASSWORD, "12345x").await.code(), "401 second_factor_required");
    let code = secret.code_at(now_seconds());
    assert_eq!(world.log_in_with("ann", PASSWORD, &code).await.status, StatusCode::OK);
    assert_eq!(
        world.log_in_with("ann", PASSWORD, &code).await.code(),
        "401 second_factor_required",
        "it was used"
    );
    assert_eq!(world.log_in_with("ann", PASSWORD, &recovery[0]).await.status, StatusCode::OK);
    assert_eq!(world.log_in_with("ann", PASSWORD, &recovery[0]).await.code(), "401 second_factor_required");
    let typed = recovery[9].to_uppercase().replace('-', " ");
    assert_eq!(world.log_in_with("ann", PASSWORD, &typed).await.status, StatusCode::OK);

    let texts =
        [world.get("/api/v1/audit").await.text(), world.get("/api/v1/accounts").await.text()].join("");
    for hidden in [secret.text(), recovery[1].clone(), "sealed".into(), "last_step".into()] {
        assert!(!texts.contains(&hidden), "{hidden}");
    }
    let wrong = json!({"password": OTHER});
    let refused = world.send_as(&session, Method::POST, "/api/v1/me/totp/disable", wrong).await;
    assert_eq!(refused.code(), "422 invalid_spec");
    let right = json!({"password": PASSWORD});
    let off = world.send_as(&session, Method::POST, "/api/v1/me/totp/disable", right).await;
    assert_eq!(off.status, StatusCode::NO_CONTENT, "{}", off.text());
    assert_eq!(world.log_in("ann", PASSWORD).await.status, StatusCode::OK);
}

/// Guesses of codes are delayed as those of passwords, also with the right password between them.
#[tokio::test]
async fn guesses_of_codes_are_delayed() {
    let world = World::new().await;
    world.with_password("ann").await;
    let session = world.session("ann", PASSWORD).await;
    world.with_totp(&session).await;
    let mut codes = Vec::new();
    for guess in 0..8 {
        assert!(
            ["401 second_factor_required", "429 login_throttled"]
                .contains(&&*world.log_in("ann", PASSWORD).await.code())
        );
        codes.push(world.log_in_with("ann", PASSWORD, &format!("{guess:06}")).await.code());
    }
    assert_eq!(codes[0], "401 second_factor_required");
    assert_eq!(codes[7], "429 login_throttled", "{codes:?}");
}

#[tokio::test]
async fn an_invitation_replaces_the_password_and_not_the_second_factor() {
    let world = World::new().await;
    world.with_password("ann").await;
    let session = world.session("ann", PASSWORD).await;
    let (secret, _) = world.with_totp(&session).await;
    let invitation = world.invite("ann", json!({})).await;
    let accept = |code: Option<String>| {
        let body = json!({"secret": invitation, "password": OTHER, "code": code});
        world.anonymous("/api/v1/invitations/accept", body)
    };
    assert_eq!(accept(None).await.code(), "401 second_factor_required");
    assert_eq!(accept(Some("000000".into())).await.code(), "401 second_factor_required");
    let accepted = accept(Some(secret.code_at(now_seconds()))).await;
    assert_eq!(accepted.status, StatusCode::OK, "{}", accepted.text());
    // An administrator deletes the second factor of a person who has lost the device.
    let reset = world.delete("/api/v1/accounts/ann/totp").await;
    assert_eq!(reset.status, StatusCode::NO_CONTENT);
    assert_eq!(world.log_in("ann", OTHER).await.status, StatusCode::OK);
    let manager = world.account("manager", &[("admin", "finance")]).await;
    let refused = world.send_as(&manager, Method::DELETE, "/api/v1/accounts/ann/totp", json!({})).await;
    assert_eq!(refused.code(), "403 forbidden");
}

#[tokio::test]
async fn a_second_factor_needs_the_password_and_a_first_code() {
    let world = World::new().await;
    world.with_password("ann").await;
    world.with_password("bob").await;
    let session = world.session("ann", PASSWORD).await;
    let start = |body: Value| world.send_as(&session, Method::POST, "/api/v1/me/totp", body);
    assert_eq!(start(json!({"password": OTHER})).await.code(), "422 invalid_spec");
    let started = start(json!({"password": PASSWORD})).await.json();
    let secret = TotpSecret::parse(started["secret"].as_str().unwrap()).unwrap();
    let put = async |token: &str, setup: &Value, code: String| {
        let body = json!({"setup": setup, "code": code});
        world.send_as(token, Method::PUT, "/api/v1/me/totp", body).await.code()
    };
    let code = secret.code_at(now_seconds());
    assert_eq!(put(&session, &started["setup"], "000000".into()).await, "422 invalid_spec");
    assert_eq!(put(&session, &json!("v1.x.y"), code.clone()).await, "422 invalid_spec");
    let bob = world.session("bob", PASSWORD).await;
    assert_eq!(put(&bob, &started["setup"], code).await, "422 invalid_spec", "it is that of ann");
    assert_eq!(world.log_in("ann", PASSWORD).await.status, StatusCode::OK, "it is not on yet");
    let program = world.account("noah", &[]).await;
    let without =
        world.send_as(&program, Method::POST, "/api/v1/me/totp", json!({"password": PASSWORD})).await;
    assert_eq!(without.code(), "409 no_password_login");
}
