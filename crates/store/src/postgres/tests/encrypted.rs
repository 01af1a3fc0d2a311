//! TLS to the database: what each `sslmode` accepts and refuses.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::*;
use crate::suite::cluster::Settings;

/// Certificate authority, and a certificate for `localhost`, created for this test.
struct Certificates(tempfile::TempDir);

impl Certificates {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let certificates = Self(folder);
        std::fs::write(certificates.path("names"), "subjectAltName=DNS:localhost\n").unwrap();
        let authority = ["-x509", "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=authority"];
        certificates.openssl("req", &authority);
        certificates.openssl("req", &["-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=server"]);
        let signed = ["-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"];
        let rest = ["-extfile", "names", "-days", "2", "-out", "server.pem"];
        certificates.run("x509", &[&signed[..], &rest[..]].concat());
        certificates
    }

    fn openssl(&self, command: &str, arguments: &[&str]) {
        let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-batch"];
        self.run(command, &[&key[..], arguments].concat());
    }

    fn run(&self, command: &str, arguments: &[&str]) {
        let output = Command::new("openssl").arg(command).args(arguments).current_dir(self.0.path()).output();
        let output = output.expect("this needs `openssl`: install the package of this name");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

/// Installs the certificate in the server's data directory, with the server as its owner.
fn give(cluster: &Cluster, certificates: &Certificates) {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
    let data = cluster.data();
    let owner = std::fs::metadata(&data).unwrap();
    for name in ["server.key", "server.pem"] {
        let to: &Path = &data.join(name);
        std::fs::copy(certificates.path(name), to).unwrap();
        std::fs::set_permissions(to, std::fs::Permissions::from_mode(0o600)).unwrap();
        chown(to, Some(owner.uid()), Some(owner.gid())).unwrap();
    }
    cluster.execute("postgres", "ALTER SYSTEM SET ssl_cert_file = 'server.pem'");
    cluster.execute("postgres", "ALTER SYSTEM SET ssl_key_file = 'server.key'");
    cluster.execute("postgres", "ALTER SYSTEM SET ssl = on");
    cluster.execute("postgres", "SELECT pg_reload_conf()");
}

/// H2. Each mode verifies what it verifies in libpq, and no less.
#[tokio::test]
async fn each_tls_mode_verifies_what_libpq_verifies() {
    let certificates = Certificates::new();
    let cluster = Arc::new(Cluster::start(&Settings::default()));
    give(&cluster, &certificates);
    let database = Arc::new(cluster.database());
    let authority = certificates.path("ca.pem").display().to_string();
    let strangers = Certificates::new();
    let stranger = strangers.path("ca.pem").display().to_string();
    let encrypted = "SELECT ssl::TEXT FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
        WHERE application_name = 'belfry' AND datname = current_database()";
    let by_name = database.url().replace("127.0.0.1", "localhost");
    for (url, mode, root, works) in [
        (database.url(), "require", None, true),
        (database.url(), "require", Some(&stranger), false),
        (database.url(), "verify-ca", Some(&authority), true),
        (database.url(), "verify-ca", Some(&stranger), false),
        (database.url(), "verify-full", Some(&authority), false),
        (by_name.clone(), "verify-full", Some(&authority), true),
        (by_name, "verify-full", Some(&stranger), false),
    ] {
        let root = root.map(|path| format!("&sslrootcert={path}")).unwrap_or_default();
        let url = format!("{url}?sslmode={mode}{root}");
        match PostgresStore::open(&url, options()).await {
            Ok(store) => {
                assert!(works, "{url} was taken");
                let told = database.execute(encrypted);
                assert!(told.contains(&Some("true".to_owned())), "{url} is not encrypted: {told:?}");
                drop(store);
            }
            Err(error) => assert!(!works, "{url}: {}", reason(&error)),
        }
    }
}
