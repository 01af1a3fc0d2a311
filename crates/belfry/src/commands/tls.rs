//! `belfry tls create`: a certificate for a server, signed by an authority of the user.
//!
//! ```text
//! DIR/ca.pem          certificate of the authority, for clients and workers
//! DIR/ca-key.pem      its key; only the user can read it
//! DIR/NAME.pem        certificate of the server
//! DIR/NAME-key.pem    its key; only the user can read it
//! ```
//!
//! An existing authority is used again, so that clients trust the certificates of all servers of a cluster, and renewed
//! ones. The name of an authority contains the digest of its key. So two authorities never have the same name, and the key
//! alone determines the name that a certificate must have as its issuer.
//!
//! # Invariants
//! - An authority is never replaced, and a certificate only with `--renew`.
//! - Each file is replaced as a whole. Keys can be read only by their owner from the beginning.

use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};
use model::Duration;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::Context;
use crate::args::tls::{TlsCommand, TlsCreateArgs};
use crate::failure::{Exit, Failure};
use crate::output::{Format, value};

/// Validity of an authority: 10 years, in days.
const AUTHORITY_DAYS: i64 = 3_650;
/// Maximum validity of a certificate in days; some clients accept no longer one.
const CERTIFICATE_DAYS_MAX: i64 = 825;
const DAY: Duration = Duration::from_hours(24);

pub(super) fn run(context: &Context, command: TlsCommand) -> Result<(), Failure> {
    let TlsCommand::Create(args) = command;
    let today = Timestamp::now().to_zoned(TimeZone::UTC).date();
    let created = create(&args, today)?;
    let look = &context.out.look;
    if matches!(look.format, Format::Json | Format::Yaml) {
        return context.out.data(value(look, &created)?);
    }
    let out = &context.out;
    if created.new_authority {
        out.note(format!("created the certificate authority `{}`", created.ca_file.display()));
    }
    let (certificate, until) = (created.cert_file.display(), created.valid_until);
    out.note(format!(
        "created the certificate `{certificate}` for {}, valid until {until}",
        args.hosts.join(", ")
    ));
    out.help(format!(
        "start the server with `--tls-cert-file {certificate} --tls-key-file {}`; give `{}` to clients (`--ca-file`) and \
         workers; keep `{}` secret",
        created.key_file.display(),
        created.ca_file.display(),
        created.ca_key_file.display(),
    ));
    Ok(())
}

/// Files of a new certificate.
#[derive(Debug, Serialize)]
struct Created {
    ca_file: PathBuf,
    ca_key_file: PathBuf,
    new_authority: bool,
    cert_file: PathBuf,
    key_file: PathBuf,
    valid_until: Date,
}

fn create(args: &TlsCreateArgs, today: Date) -> Result<Created, Failure> {
    args.hosts.iter().try_for_each(|host| check_host(host))?;
    let days = i64::try_from(args.valid_for.as_millis() / DAY.as_millis()).unwrap_or(i64::MAX);
    if !(1..=CERTIFICATE_DAYS_MAX).contains(&days) {
        let problem = format!("expected 1d to {CERTIFICATE_DAYS_MAX}d but got {}", args.valid_for);
        return Err(Failure::usage(format!("invalid `--valid-for`: {problem}")));
    }
    let is_name = !args.name.is_empty() && args.name != "ca" && !args.name.contains('/');
    if !is_name {
        return Err(Failure::usage(format!("invalid `--name`: `{}` is not the name of a server", args.name))
            .help("use a short name such as `server` or `b`"));
    }
    let file = |name: &str| args.dir.join(name);
    let (cert_file, key_file) =
        (file(&format!("{}.pem", args.name)), file(&format!("{}-key.pem", args.name)));
    let existing = [&cert_file, &key_file].into_iter().find(|path| path.exists());
    if let Some(path) = existing.filter(|_| !args.renew) {
        return Err(Failure::message(Exit::Failed, format!("`{}` exists already", path.display()))
            .help("replace the certificate with `--renew`, or choose another `--name`"));
    }
    let folder = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&args.dir);
    folder.map_err(|error| failed("create", &args.dir, &error))?;
    let (authority, new_authority) = Authority::open(&args.dir, today)?;
    let valid_until = after(today, days)?;
    let key = KeyPair::generate().map_err(internal)?;
    let certificate = authority.sign(&args.hosts, &key, today, valid_until)?;
    write_private(&key_file, &key.serialize_pem())?;
    write_public(&cert_file, &certificate)?;
    let Authority { ca_file, ca_key_file, .. } = authority;
    Ok(Created { ca_file, ca_key_file, new_authority, cert_file, key_file, valid_until })
}

/// A certificate authority and its files.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    ca_file: PathBuf,
    ca_key_file: PathBuf,
}

impl Authority {
    /// Opens the authority of a directory. Returns whether it was created now.
    fn open(dir: &Path, today: Date) -> Result<(Self, bool), Failure> {
        let (ca_file, ca_key_file) = (dir.join("ca.pem"), dir.join("ca-key.pem"));
        let is_new = match (ca_file.exists(), ca_key_file.exists()) {
            (true, true) => false,
            (false, false) => true,
            (has_certificate, _) => {
                let missing = if has_certificate { &ca_key_file } else { &ca_file };
                let detail =
                    format!("the certificate authority is incomplete: `{}` is missing", missing.display());
                return Err(Failure::message(Exit::Failed, detail)
                    .help("restore the file, or use an empty directory (`--dir`) for a new authority"));
            }
        };
        let key = if is_new {
            KeyPair::generate().map_err(internal)?
        } else {
            let pem = std::fs::read_to_string(&ca_key_file);
            let pem = pem.map_err(|error| failed("read", &ca_key_file, &error))?;
            KeyPair::from_pem(&pem).map_err(|error| failed("use the key in", &ca_key_file, &error))?
        };
        let params = authority_params(&key, today)?;
        if is_new {
            let certificate = params.self_signed(&key).map_err(internal)?;
            write_private(&ca_key_file, &key.serialize_pem())?;
            write_public(&ca_file, &certificate.pem())?;
        } else {
            check_pair(&ca_file, &ca_key_file, &key)?;
        }
        Ok((Self { issuer: Issuer::new(params, key), ca_file, ca_key_file }, is_new))
    }

    /// Returns a certificate (PEM) for these hosts and this key.
    fn sign(&self, hosts: &[String], key: &KeyPair, today: Date, until: Date) -> Result<String, Failure> {
        let mut params = CertificateParams::new(hosts).map_err(internal)?;
        params.distinguished_name = common_name(&hosts[0]);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        set_validity(&mut params, today, until)?;
        Ok(params.signed_by(key, &self.issuer).map_err(internal)?.pem())
    }
}

fn authority_params(key: &KeyPair, today: Date) -> Result<CertificateParams, Failure> {
    let mut params = CertificateParams::default();
    params.distinguished_name = common_name(&authority_name(key));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    set_validity(&mut params, today, after(today, AUTHORITY_DAYS)?)?;
    Ok(params)
}

fn authority_name(key: &KeyPair) -> String {
    let digest = Sha256::digest(key.public_key_raw());
    let digest: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("Belfry authority {digest}")
}

fn common_name(text: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, text);
    name
}

/// Checks that the certificate in a file was created for this key.
fn check_pair(ca_file: &Path, ca_key_file: &Path, key: &KeyPair) -> Result<(), Failure> {
    let pem = std::fs::read_to_string(ca_file).map_err(|error| failed("read", ca_file, &error))?;
    let der = pem.split_once("-----BEGIN CERTIFICATE-----").and_then(|(_, rest)| rest.split_once("-----END"));
    let der = der.map(|(body, _)| body.split_whitespace().collect::<String>());
    let der = der.and_then(|body| STANDARD.decode(body).ok()).unwrap_or_default();
    let contains = |part: &[u8]| der.windows(part.len()).any(|window| window == part);
    if contains(key.public_key_raw()) && contains(authority_name(key).as_bytes()) {
        return Ok(());
    }
    let detail = format!(
        "`{}` is not the authority of the key in `{}`, or was not created by `belfry tls create`",
        ca_file.display(),
        ca_key_file.display()
    );
    Err(Failure::message(Exit::Failed, detail)
        .help("restore the file, or use an empty directory (`--dir`) for a new authority"))
}

/// Sets the validity. It begins a day earlier, because clocks differ.
fn set_validity(params: &mut CertificateParams, today: Date, until: Date) -> Result<(), Failure> {
    let midnight = |date: Date| {
        let (month, day) = (date.month().cast_unsigned(), date.day().cast_unsigned());
        rcgen::date_time_ymd(date.year().into(), month, day)
    };
    params.not_before = midnight(after(today, -1)?);
    params.not_after = midnight(until);
    Ok(())
}

fn after(date: Date, days: i64) -> Result<Date, Failure> {
    date.checked_add(Span::new().days(days)).map_err(|error| Failure::new(Exit::Failed, error))
}

/// Checks a host name or an IP address of the command line.
fn check_host(host: &str) -> Result<(), Failure> {
    let is_label = |label: &str| {
        let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        (1..=63).contains(&label.len())
            && label.bytes().all(is_inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let name = host.strip_prefix("*.").unwrap_or(host);
    let is_address = host.parse::<std::net::IpAddr>().is_ok();
    if is_address || (name.len() <= 253 && name.split('.').all(is_label)) {
        return Ok(());
    }
    Err(Failure::usage(format!("`{host}` is neither a host name nor an IP address"))
        .help("write the host only, without `https://` and without a port, for example `belfry.example.com`"))
}

fn write_private(path: &Path, text: &str) -> Result<(), Failure> {
    write(path, text, 0o600)
}

fn write_public(path: &Path, text: &str) -> Result<(), Failure> {
    write(path, text, 0o644)
}

fn write(path: &Path, text: &str, mode: u32) -> Result<(), Failure> {
    let written = || -> std::io::Result<()> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut file = tempfile::Builder::new().prefix(".tls-").tempfile_in(folder)?;
        file.write_all(text.as_bytes())?;
        file.as_file().set_permissions(std::fs::Permissions::from_mode(mode))?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        Ok(())
    };
    written().map_err(|error| failed("write", path, &error))
}

fn failed(action: &str, path: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::message(Exit::Failed, format!("cannot {action} `{}`: {error}", path.display()))
}

fn internal(error: rcgen::Error) -> Failure {
    Failure::new(Exit::Failed, anyhow::Error::new(error).context("cannot create the certificate"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TODAY: Date = Date::constant(2026, 11, 30);

    fn args(dir: &Path, name: &str, hosts: &[&str]) -> TlsCreateArgs {
        TlsCreateArgs {
            hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
            dir: dir.to_owned(),
            name: name.into(),
            valid_for: Duration::from_hours(24 * 365),
            renew: false,
        }
    }

    fn refused(args: &TlsCreateArgs) -> String {
        let text = create(args, TODAY).unwrap_err().render(false);
        text.replace(&args.dir.display().to_string(), "DIR")
    }

    fn read(path: &Path) -> String {
        std::fs::read_to_string(path).unwrap()
    }

    #[test]
    fn a_second_certificate_uses_the_authority_of_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let first = create(&args(dir.path(), "server", &["a.example", "10.0.0.1"]), TODAY).unwrap();
        assert!(first.new_authority);
        assert_eq!(first.valid_until, Date::constant(2027, 11, 30));
        let authority = read(&first.ca_file);
        let second = create(&args(dir.path(), "b", &["b.example"]), TODAY).unwrap();
        assert!(!second.new_authority);
        assert_eq!(read(&second.ca_file), authority);
        assert_ne!(read(&first.cert_file), read(&second.cert_file));
        for (file, mode) in [(&first.ca_key_file, 0o600), (&first.key_file, 0o600), (&first.cert_file, 0o644)]
        {
            assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, mode, "{}", file.display());
        }
    }

    #[test]
    fn an_existing_certificate_is_replaced_only_on_demand() {
        let dir = tempfile::tempdir().unwrap();
        let mut args = args(dir.path(), "server", &["a.example"]);
        let first = read(&create(&args, TODAY).unwrap().cert_file);
        insta::assert_snapshot!(refused(&args), @r"
        error: `DIR/server.pem` exists already
        help: replace the certificate with `--renew`, or choose another `--name`
        ");
        assert_eq!(read(&dir.path().join("server.pem")), first);
        args.renew = true;
        let renewed = create(&args, TODAY).unwrap();
        assert!(!renewed.new_authority);
        assert_ne!(read(&renewed.cert_file), first);
    }

    #[test]
    fn an_authority_is_never_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let first = create(&args(dir.path(), "server", &["a.example"]), TODAY).unwrap();
        let other = tempfile::tempdir().unwrap();
        let stranger = create(&args(other.path(), "server", &["a.example"]), TODAY).unwrap();
        let more = args(dir.path(), "b", &["b.example"]);
        std::fs::copy(&stranger.ca_file, &first.ca_file).unwrap();
        insta::assert_snapshot!(refused(&more), @r"
        error: `DIR/ca.pem` is not the authority of the key in `DIR/ca-key.pem`, or was not created by `belfry tls create`
        help: restore the file, or use an empty directory (`--dir`) for a new authority
        ");
        std::fs::remove_file(&first.ca_file).unwrap();
        assert!(refused(&more).contains("`DIR/ca.pem` is missing"));
        assert!(!dir.path().join("b.pem").exists());
    }

    #[test]
    fn a_url_is_no_host() {
        let dir = tempfile::tempdir().unwrap();
        for host in ["https://a.example", "a.example:7070", "", "a..b", "-a", "a b", "*", "a.*.example"] {
            assert!(
                refused(&args(dir.path(), "server", &[host])).contains("neither a host name nor"),
                "{host}"
            );
        }
        for host in ["a", "*.example.com", "10.0.0.1", "fd00::1", "a-b.example"] {
            assert!(check_host(host).is_ok(), "{host}");
        }
        for name in ["", "ca", "../x"] {
            assert!(refused(&args(dir.path(), name, &["a"])).contains("invalid `--name`"), "{name}");
        }
        let mut long = args(dir.path(), "server", &["a"]);
        long.valid_for = Duration::from_hours(24 * 900);
        assert!(refused(&long).contains("expected 1d to 825d"));
    }
}
