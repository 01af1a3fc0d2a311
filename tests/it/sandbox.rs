//! Sandboxes of processes: a job runs as without one, and cannot get out.
//!
//! Each attack of [`ATTACKS`] is a line of Perl, which every Debian has. The tests say that they are skipped where the kernel
//! has no user namespaces for ordinary users.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use client::{LogQuery, LogSource, Page, WorkerFilter};
use harness::{Role, Site, until};
use model::api::Job;
use model::namespace::NamespaceSettings;
use model::spec::{
    Delivery, Hook, InputFile, OutputFile, Port, ProcessRun, Run, Sandbox, SandboxLevel, SandboxNetwork,
    Volume,
};
use model::{Bytes, JobId, JobSpec, JobStatus};

const SOON: Duration = Duration::from_secs(60);
const LEVELS: [SandboxLevel; 2] = [SandboxLevel::Basic, SandboxLevel::Strict];

/// Attempts to leave a sandbox of any level: `NAME` and a Perl expression that is true if the attempt succeeds.
/// `$worker` is the directory of the worker, `$pid` a process of it, `$other` the file of another task, `$port` a port of the
/// server.
const ATTACKS: &[(&str, &str)] = &[
    ("read the file of another task", "open(F, '<', $other)"),
    ("list the directory of the worker", "grep { !/^\\.|^exec$/ } (opendir(D, $worker) ? readdir D : ())"),
    (
        "list the directories of other tasks",
        "(grep { !/^\\./ } (opendir(D, \"$worker/exec\") ? readdir D : ())) > 1",
    ),
    ("see the worker", "-e \"/proc/$pid/stat\" && qx(cat /proc/$pid/cmdline) =~ /belfry/"),
    ("signal the worker", "qx(cat /proc/$pid/cmdline 2>/dev/null) =~ /belfry/ && kill(0, $pid)"),
    ("read the memory of the first process", "open(F, '<', '/proc/1/mem')"),
    ("read the files of the first process", "grep { readlink } glob('/proc/1/fd/*')"),
    ("write to /usr", "open(F, '>', '/usr/x')"),
    ("write to /etc", "open(F, '>>', '/etc/hosts')"),
    ("write to /", "mkdir('/x')"),
    ("write to /proc", "open(F, '>', '/proc/sys/kernel/core_pattern')"),
    ("write to sysrq", "open(F, '>', '/proc/sysrq-trigger')"),
    ("write to /sys", "open(F, '>', '/sys/kernel/mm/transparent_hugepage/enabled')"),
    ("write to /dev", "open(F, '>', '/dev/x')"),
    ("open a disk", "grep { open(F, '<', $_) } glob('/dev/vd* /dev/sd* /dev/nvme* /dev/loop*')"),
    ("create a device", "syscall(133, z('./disk'), 0060666, 0xfe00) == 0 && open(F, '<', './disk')"),
    ("reach services of the machine", "grep { -S $_ } glob('/run/* /run/*/* /var/run/*')"),
    ("mount", "mkdir('m') && syscall(165, z('none'), z('./m'), z('tmpfs'), 0, 0) == 0"),
    ("remount /", "syscall(165, z('none'), z('/'), z('none'), 4128, 0) == 0"),
    ("unmount /proc", "syscall(166, z('/proc'), 2) == 0"),
    ("open_tree", "syscall(428, -100, z('/'), 1) >= 0"),
    ("move_mount", "syscall(429, -100, z('/tmp'), -100, z('/usr'), 0) == 0"),
    ("fsopen", "syscall(430, z('tmpfs'), 0) >= 0"),
    ("mount_setattr", "syscall(442, -100, z('/'), 0, z(pack('Q4', 0, 1, 0, 0)), 32) == 0"),
    ("pivot_root", "syscall(155, z('.'), z('.')) == 0"),
    ("chroot", "syscall(161, z('.')) == 0"),
    ("new user namespace", "syscall(272, 0x10000000) == 0"),
    ("new mount namespace", "syscall(272, 0x20000) == 0"),
    (
        "clone into a user namespace",
        "my $p = syscall(56, 0x10000011, 0, 0, 0, 0); POSIX::_exit(0) if $p == 0; $p > 0",
    ),
    (
        "clone3",
        "my $p = syscall(435, z(pack('Q8', 0, 0, 0, 0, 17, 0, 0, 0)), 64); POSIX::_exit(0) if $p == 0; $p > 0",
    ),
    ("enter a namespace", "open(F, '<', '/proc/self/ns/net') && syscall(308, fileno(F), 0) == 0"),
    ("bpf", "syscall(321, 0, z(pack('Q16', (0) x 16)), 128) >= 0 || $!{EINVAL}"),
    ("perf_event_open", "syscall(298, z(pack('L2Q14', 1, 112, (0) x 14)), 0, -1, -1, 0) >= 0"),
    ("userfaultfd", "syscall(323, 1) >= 0"),
    ("io_uring", "syscall(425, 1, z(pack('Q15', (0) x 15))) >= 0 || $!{EINVAL}"),
    ("keys", "syscall(250, 0, -3, 1, 0, 0) >= 0"),
    ("kexec", "syscall(246, 0, 0, 0, 0) >= 0"),
    ("load a module", "syscall(175, 0, 0, z('')) >= 0 || !$!{EPERM}"),
    ("set the clock", "syscall(227, 0, z(pack('Q2', time, 0))) == 0"),
    ("reboot", "syscall(169, 0, 0, 0, 0) == 0"),
    ("sethostname", "syscall(170, z('x'), 1) == 0"),
    ("open by handle", "syscall(304, 3, z(pack('L2', 0, 0)), 0) >= 0 || !$!{EPERM}"),
    ("type into a terminal", "ioctl(STDIN, 0x5412, z('x')) || !$!{EPERM}"),
    ("raw packets", "syscall(41, 17, 3, 0) >= 0"),
    ("raw IP", "syscall(41, 2, 3, 1) >= 0"),
    ("sockets of the hypervisor", "syscall(41, 40, 1, 0) >= 0 || !$!{EAFNOSUPPORT}"),
    ("sockets of the cipher API", "syscall(41, 38, 5, 0) >= 0 || !$!{EAFNOSUPPORT}"),
    ("change the mode of a device", "chmod(0666, '/dev/full')"),
    ("make a set-user-ID program", "open(F, '>', \"$shared/suid\") && chmod(04755, \"$shared/suid\")"),
    (
        "create a set-user-ID program",
        "syscall(2, z(\"$shared/new\"), 0101, 04755) >= 0 && -u \"$shared/new\"",
    ),
    (
        "capabilities",
        "grep { /^Cap(Inh|Prm|Eff|Bnd|Amb):\\s*0*[1-9a-f]/ } split /\\n/, qx(cat /proc/self/status)",
    ),
];

/// Further attempts, which only the level `strict` refuses.
const STRICT_ATTACKS: &[(&str, &str)] = &[
    ("see other files", "grep { -e $_ } qw(/etc/shadow /etc/passwd- /home /root /srv /boot /sys /run /mnt)"),
    ("trace", "syscall(101, 0, 0, 0, 0) >= 0"),
    ("read another process", "syscall(310, $$, 0, 0, 0, 0, 0) >= 0"),
    ("connect to the server", "connects('127.0.0.1', $port)"),
    ("other interfaces", "scalar(my @all = scalar(qx(cat /proc/net/dev)) =~ /^\\s*\\S+:/gm) > 1"),
];

const PRELUDE: &str = r"
use Socket; use Errno; use POSIX (); no warnings;
sub connects { my ($host, $port) = @_; socket(my $s, PF_INET, SOCK_STREAM, 0) or return 0; local $SIG{ALRM} = sub { die };
  eval { alarm 2; my $ok = connect($s, sockaddr_in($port, inet_aton($host))); alarm 0; $ok } }
# A system call needs a text that it could change.
sub z { my $text = shift; $text }
my ($worker, $pid, $other, $port) = @ARGV;
my $shared = $ENV{BELFRY_VOLUME_SHARED};
$| = 1;
";

/// Starts a server and a worker whose tasks run as `nobody`, or as root with `as_root`. Returns `None` if the worker has no
/// sandboxes.
async fn site(as_root: bool) -> Option<(Site, PathBuf)> {
    let mut site = Site::server_only(&[]).await;
    let shared = site.path("shared");
    fs::create_dir(&shared).unwrap();
    fs::set_permissions(&shared, Permissions::from_mode(0o777)).unwrap();
    let inner = shared.join("inner");
    fs::create_dir(&inner).unwrap();
    fs::set_permissions(&inner, Permissions::from_mode(0o777)).unwrap();
    let tools = harness::belfry();
    let settings = [
        ("BELFRY_WORKER__VOLUMES", format!("shared={},inner={}", shared.display(), inner.display())),
        ("BELFRY_WORKER__SANDBOX_PATHS", tools.display().to_string()),
        ("BELFRY_WORKER__ALLOW_ROOT_TASKS", as_root.to_string()),
    ];
    site.worker_settings.extend(settings.map(|(name, value)| (name.to_owned(), value)));
    site.add_worker().await;
    let workers = site.client().workers_page(&WorkerFilter::default(), &Page::default()).await.unwrap();
    if workers.items[0].capabilities.sandbox_levels == LEVELS {
        return Some((site, shared));
    }
    assert!(!has_user_namespaces(), "the kernel has everything, but the worker lists no sandboxes");
    eprintln!("skipped: ordinary users cannot create user namespaces on this machine");
    None
}

fn has_user_namespaces() -> bool {
    let as_nobody = ["--reuid=65534", "--regid=65534", "--clear-groups", "unshare", "-Urmpf", "true"];
    let tried = std::process::Command::new("setpriv").args(as_nobody).status();
    tried.is_ok_and(|status| status.success())
}

fn sandboxed(level: SandboxLevel, script: &str) -> JobSpec {
    let run = ProcessRun {
        script: Some(script.to_owned()),
        sandbox: Sandbox { level, network: None },
        ..ProcessRun::default()
    };
    let mut spec = JobSpec::new(Run::Process(run));
    spec.volumes = vec![Volume { name: "shared".into() }];
    spec
}

fn process(spec: &mut JobSpec) -> &mut ProcessRun {
    spec.run.as_process_mut().unwrap()
}

async fn ended(site: &Site, spec: &JobSpec) -> Job {
    let job = site.submit(spec).await;
    site.until_job(job, "ended", |job| job.status.is_final()).await
}

async fn log_of(site: &Site, job: JobId) -> String {
    let page = site.client().logs(LogSource::Job(job, None), &LogQuery::default()).await.unwrap();
    page.items.iter().map(|line| format!("{}\n", line.text.trim_end())).collect()
}

fn error(job: &Job) -> &str {
    job.result.as_ref().and_then(|result| result.error.as_deref()).unwrap_or("none")
}

fn exit_code(job: &Job) -> Option<i32> {
    job.result.as_ref()?.exit_code
}

/// F1, F2. Results, logs, outputs, artifacts, volumes, limits, sidecars, hooks and the socket are those of any job.
#[tokio::test]
async fn a_process_in_a_sandbox_runs_like_any_other() {
    let Some((site, shared)) = site(false).await else { return };
    for level in LEVELS {
        let mut spec = sandboxed(
            level,
            "cat; echo err >&2; echo $A; id -u > $BELFRY_VOLUME_SHARED/user; pwd > $BELFRY_VOLUME_SHARED/pwd
             ls -d /proc/[0-9]* | wc -l > $BELFRY_VOLUME_SHARED/processes
             echo '{\"n\": 5}' > $BELFRY_OUTPUT; echo $TMPDIR $HOME",
        );
        let run = process(&mut spec);
        run.stdin = Some("input\n".into());
        run.env.insert("A".into(), "value".into());
        let job = ended(&site, &spec).await;
        assert_eq!((job.status, exit_code(&job)), (JobStatus::Succeeded, Some(0)), "{:?}", job.result);
        assert_eq!(job.result.as_ref().unwrap().output, Some(serde_json::json!({"n": 5})));
        let read = |name: &str| fs::read_to_string(shared.join(name)).unwrap().trim().to_owned();
        assert_eq!(read("user"), "65534");
        let directory = read("pwd");
        let log = log_of(&site, job.id).await;
        for line in ["input", "err", "value", &format!("{directory} {directory}")] {
            assert!(log.lines().any(|seen| seen == line), "{line}: {log}");
        }
        // The first process, the shell, and the three programs of the pipe at most.
        assert!(read("processes").parse::<u32>().unwrap() <= 5, "{}", read("processes"));

        let mut produces = sandboxed(level, "mkdir out; echo made > out/file");
        produces.outputs =
            vec![OutputFile { artifact: "made".into(), path: "out/file".into(), optional: false }];
        assert_eq!(ended(&site, &produces).await.status, JobStatus::Succeeded);
        let mut consumes = sandboxed(level, "cat in/file > $BELFRY_VOLUME_SHARED/copy");
        consumes.inputs =
            vec![InputFile { artifact: "made".into(), path: "in/file".into(), executable: false }];
        assert_eq!(ended(&site, &consumes).await.status, JobStatus::Succeeded);
        assert_eq!(read("copy"), "made");

        let failed = ended(&site, &sandboxed(level, "exit 3")).await;
        assert_eq!((failed.status, exit_code(&failed)), (JobStatus::Failed, Some(3)));
        let killed = ended(&site, &sandboxed(level, "kill -SEGV $$")).await;
        assert_eq!(killed.result.unwrap().signal, Some(11));
        let mut hog = sandboxed(level, "dd if=/dev/zero of=/dev/null bs=200M count=1");
        hog.resources.limits.memory = Some(Bytes(32 << 20));
        assert_eq!(error(&ended(&site, &hog).await), "out_of_memory");

        let mut alone = sandboxed(level, "true");
        alone.resources.limits.pids = Some(1);
        assert_eq!(
            ended(&site, &alone).await.status,
            JobStatus::Succeeded,
            "Belfry's own processes are extra"
        );

        let mut missing = sandboxed(level, "");
        (process(&mut missing).script, process(&mut missing).command) = (None, vec!["nosuch".into()]);
        missing.retry.max_start_retries = 0;
        assert_eq!(error(&ended(&site, &missing).await), "command_not_found");
        let mut nowhere = sandboxed(level, "true");
        process(&mut nowhere).working_directory = Some("/nosuch".into());
        nowhere.retry.max_start_retries = 0;
        assert_eq!(error(&ended(&site, &nowhere).await), "working_directory");

        let mut accompanied = sandboxed(level, "cat ready");
        let run = process(&mut accompanied);
        run.pre_start = vec![hook("echo before > ready")];
        run.post_stop = vec![hook("echo after $BELFRY_EXIT_CODE")];
        run.sidecars =
            serde_json::from_value(serde_json::json!([{"name": "s", "command": ["sleep", "1000"]}])).unwrap();
        let job = ended(&site, &accompanied).await;
        let log = log_of(&site, job.id).await;
        assert!(job.status == JobStatus::Succeeded && log.contains("before\nafter 0\n"), "{log}");

        let program = harness::belfry();
        let mut saves =
            sandboxed(level, &format!("echo saved | {} task checkpoint set -", program.display()));
        saves.delivery = Delivery::ExactlyOnce;
        let job = ended(&site, &saves).await;
        assert_eq!(job.status, JobStatus::Succeeded, "{}", log_of(&site, job.id).await);
    }
}

fn hook(script: &str) -> Hook {
    Hook { command: vec!["/bin/sh".into(), "-c".into(), script.into()], timeout: None }
}

/// Returns the script that tries all attacks, each in a process of its own.
fn attack_script(attacks: &[&(&str, &str)], arguments: &str) -> String {
    let mut script = format!("cat > attack.pl <<'END'\n{PRELUDE}");
    for (name, attack) in attacks {
        script += &format!(
            "if (my $p = fork) {{ waitpid($p, 0) }} else {{ $! = 0; print \"{name}: \", (eval {{ {attack} }}) ? 'ESCAPED' : 'refused', \"\\n\"; POSIX::_exit(0) }}\n"
        );
    }
    script + &format!("END\nperl attack.pl {arguments}\n")
}

/// D9, F2. No attack succeeds, as an ordinary user and as root of the machine.
#[tokio::test]
async fn no_attack_leaves_a_sandbox() {
    for as_root in [false, true] {
        let Some((site, shared)) = site(as_root).await else { return };
        let victim = "echo $PWD/.belfry-script > $BELFRY_VOLUME_SHARED/other; sleep 1000";
        let victim = site.submit(&sandboxed(SandboxLevel::None, victim)).await;
        until("the other task runs", SOON, async || {
            fs::read_to_string(shared.join("other")).is_ok_and(|text| text.ends_with('\n')).then_some(())
        })
        .await;
        let other = fs::read_to_string(shared.join("other")).unwrap();
        let (directory, _) = other.split_once("/exec/").unwrap();
        let supervisor = site.workers[0].find(Role::Supervisor).unwrap();
        let arguments = format!("{directory} {supervisor} {} {}", other.trim(), site.server.address().port());
        for level in LEVELS {
            let strict = STRICT_ATTACKS.iter().filter(|_| level == SandboxLevel::Strict);
            let attacks: Vec<_> = ATTACKS.iter().chain(strict).collect();
            let job = ended(&site, &sandboxed(level, &attack_script(&attacks, &arguments))).await;
            let log = log_of(&site, job.id).await;
            let about = format!("{level}, root: {as_root}\n{log}");
            assert!(!log.contains("ESCAPED"), "{about}");
            assert_eq!(log.matches(": refused").count(), attacks.len(), "{about}");
            assert_eq!(job.status, JobStatus::Succeeded, "{about}");
        }
        assert_eq!(site.client().job(victim).await.unwrap().status, JobStatus::Running);
        if as_root {
            continue;
        }
        // Attacks that never succeed would prove nothing.
        let attacks: Vec<_> = ATTACKS.iter().chain(STRICT_ATTACKS).collect();
        let open = sandboxed(SandboxLevel::None, &attack_script(&attacks, &arguments));
        let log = log_of(&site, ended(&site, &open).await.id).await;
        for attack in [
            "read the file of another task",
            "see the worker",
            "new user namespace",
            "clone3",
            "keys",
            "make a set-user-ID program",
            "trace",
            "connect to the server",
        ] {
            assert!(log.contains(&format!("{attack}: ESCAPED")), "{attack}\n{log}");
        }
    }
}

/// The network is the one that the job asks for.
#[tokio::test]
async fn a_sandbox_has_the_network_that_the_job_wants() {
    let Some((site, _)) = site(false).await else { return };
    let port = site.server.address().port();
    let connects = format!(
        "perl -e 'use IO::Socket::INET; exit(IO::Socket::INET->new(PeerAddr => \"127.0.0.1:{port}\", Timeout => 5) ? 0 : 7)'"
    );
    for level in LEVELS {
        for (network, code) in
            [(SandboxNetwork::Host, 0), (SandboxNetwork::Loopback, 7), (SandboxNetwork::None, 7)]
        {
            let mut spec = sandboxed(level, &connects);
            process(&mut spec).sandbox.network = Some(network);
            let job = ended(&site, &spec).await;
            assert_eq!(exit_code(&job), Some(code), "{level} {network}: {}", log_of(&site, job.id).await);
        }
        let own = "perl -e 'use IO::Socket::INET; my $l = IO::Socket::INET->new(Listen => 1, LocalAddr => \"127.0.0.1:7777\") or die $!; \
                   IO::Socket::INET->new(PeerAddr => \"127.0.0.1:7777\") or die $!'";
        let mut spec = sandboxed(level, own);
        process(&mut spec).sandbox.network = Some(SandboxNetwork::Loopback);
        let job = ended(&site, &spec).await;
        assert_eq!(job.status, JobStatus::Succeeded, "{}", log_of(&site, job.id).await);
    }
}

/// D2, D9. Stops reach the process; nothing survives the end of the execution, however it ends.
#[tokio::test]
async fn stops_and_kills_reach_everything_in_a_sandbox() {
    let Some((site, shared)) = site(false).await else { return };
    for level in LEVELS {
        let patient = "trap 'echo stopped; exit 0' TERM; setsid sleep 1000 & touch $BELFRY_VOLUME_SHARED/up; while :; do sleep 0.1; done";
        // The shim is the first process of the task, and the first process of the sandbox is its child.
        for (case, target) in
            [("cancel", None), ("kill of the shim", Some(0)), ("kill of the first process", Some(1))]
        {
            fs::remove_file(shared.join("up")).ok();
            let job = site.submit(&sandboxed(level, patient)).await;
            until("the task runs", SOON, async || shared.join("up").exists().then_some(())).await;
            match target {
                None => drop(site.belfry(&["job", "cancel", &job.to_string()]).await.success()),
                Some(target) => site.workers[0].tasks()[target].kill(),
            }
            let ended = site.until_job(job, "ended", |job| job.status.is_final()).await;
            let expected = if target.is_none() { JobStatus::Cancelled } else { JobStatus::Failed };
            assert_eq!(ended.status, expected, "{level}, {case}: {:?}", ended.result);
            let log = log_of(&site, job).await;
            assert_eq!(log.contains("stopped"), target.is_none(), "{level}, {case}: {log}");
            assert_eq!(site.workers[0].tasks(), [], "{level}, {case}");
        }
    }
}

/// D4, D9. A sandbox ends with its supervisor, and its job runs again.
#[tokio::test]
async fn a_sandbox_ends_with_its_supervisor() {
    let Some((site, shared)) = site(false).await else { return };
    let script = "echo x >> $BELFRY_VOLUME_SHARED/starts; setsid sleep 1000 & \
                  [ $(wc -l < $BELFRY_VOLUME_SHARED/starts) = 2 ] || while :; do sleep 0.1; done";
    let job = site.submit(&sandboxed(SandboxLevel::Strict, script)).await;
    until("the task runs", SOON, async || shared.join("starts").exists().then_some(())).await;
    let tasks = site.workers[0].tasks();
    site.workers[0].find(Role::Supervisor).unwrap().kill();
    until("the tasks are dead", SOON, async || tasks.iter().all(|t| !t.is_alive()).then_some(())).await;
    let ended = site.until_job(job, "ended", |job| job.status.is_final()).await;
    assert_eq!((ended.status, ended.executions), (JobStatus::Succeeded, 2));
}

/// D5, D9. The processes of a sandbox are frozen without a lease, and continue with the next one.
#[tokio::test]
async fn a_sandbox_is_frozen_without_a_lease() {
    let Some((mut site, shared)) = site(false).await else { return };
    let beat = "touch $BELFRY_VOLUME_SHARED/up; i=0; while [ $i -lt 600 ]; do i=$((i+1)); echo $i > $BELFRY_VOLUME_SHARED/beat; sleep 0.1; \
                [ -e $BELFRY_VOLUME_SHARED/end ] && exit 0; done; exit 1";
    let mut spec = sandboxed(SandboxLevel::Strict, beat);
    spec.delivery = Delivery::ExactlyOnce;
    let job = site.submit(&spec).await;
    until("the task runs", SOON, async || shared.join("up").exists().then_some(())).await;
    site.server.kill().await;
    until("everything is frozen", SOON, async || {
        let tasks = site.workers[0].tasks();
        (tasks.len() >= 3 && tasks.iter().all(|task| task.is_paused())).then_some(())
    })
    .await;
    site.server.restart().await;
    fs::write(shared.join("end"), "").unwrap();
    let ended = site.until_job(job, "ended", |job| job.status.is_final()).await;
    assert_eq!((ended.status, ended.executions), (JobStatus::Succeeded, 1));
}

/// A task cannot replace a volume in another volume by a link to any directory.
#[tokio::test]
async fn a_link_in_place_of_a_volume_is_not_followed() {
    let Some((site, _)) = site(false).await else { return };
    let replaced = "rmdir $BELFRY_VOLUME_SHARED/inner && ln -s / $BELFRY_VOLUME_SHARED/inner";
    assert_eq!(ended(&site, &sandboxed(SandboxLevel::None, replaced)).await.status, JobStatus::Succeeded);
    for level in LEVELS {
        let mut spec = sandboxed(level, "true");
        spec.volumes = vec![Volume { name: "inner".into() }];
        spec.retry.max_start_retries = 0;
        assert_eq!(error(&ended(&site, &spec).await), "sandbox_unavailable");
    }
}

/// H2. All new processes of a namespace have its minimum, also those of schedules from before.
#[tokio::test]
async fn a_namespace_gives_its_processes_a_sandbox() {
    let Some((site, _)) = site(false).await else { return };
    let schedule = site.path("schedule.yaml");
    fs::write(
        &schedule,
        "kind: schedule\nname: old\nnamespace: guests\nspec:\n  job: {run: {process: {command: [ls, /etc/shadow]}}}\n",
    )
    .unwrap();
    site.belfry(&["apply", "-f", schedule.to_str().unwrap()]).await.success();
    site.belfry(&["namespace", "set", "guests", "--sandbox", "strict"]).await.success();
    let ran = site.belfry(&["schedule", "trigger", "old", "--namespace", "guests", "--wait"]).await;
    assert_ne!(ran.code, 0, "a strict sandbox has no such file: {}", ran.stdout);

    let mut plain = JobSpec::command(["true"]);
    plain.namespace = "guests".into();
    let job = ended(&site, &plain).await;
    let strict = Sandbox { level: SandboxLevel::Strict, network: None };
    assert_eq!(job.spec.as_ref().unwrap().run.as_process().unwrap().sandbox, strict);
    assert_eq!(job.status, JobStatus::Succeeded);

    let mut serves = plain.clone();
    serves.ports = vec![Port { name: "http".into(), port: None }];
    serves.retry.max_start_retries = 0;
    let job = ended(&site, &serves).await;
    assert_eq!(error(&job), "sandbox_conflict", "{:?}", job.result);
    let settings: NamespaceSettings = site.client().namespace("guests").await.unwrap().settings;
    assert_eq!(settings.sandbox, strict);
}
