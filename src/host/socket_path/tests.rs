//! What may lie at a path, and whose it is.

use super::*;

fn spec(path: PathBuf) -> SocketSpec {
    SocketSpec { mode: 0o640, ..SocketSpec::private(path) }
}

#[test]
fn socket_has_its_mode_and_goes_with_its_server() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");

    let listener = Listener::bind(&spec(path.clone()), SocketType::SEQPACKET).unwrap();
    let mode = fs::symlink_metadata(&path).unwrap().mode() & 0o777;
    drop(listener);

    assert_eq!(mode, 0o640);
    assert!(!path.exists());
}

#[test]
fn living_server_keeps_its_path() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let _first = Listener::bind(&spec(path.clone()), SocketType::SEQPACKET).unwrap();

    for kind in [SocketType::SEQPACKET, SocketType::STREAM] {
        let second = Listener::bind(&spec(path.clone()), kind);
        assert!(matches!(second, Err(BindError::InUse(_))), "{second:?}");
    }
    assert!(path.exists());
}

#[test]
fn dead_servers_socket_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let dead = Listener::bind(&spec(path.clone()), SocketType::SEQPACKET).unwrap();
    let aside = folder.path().join("aside");
    fs::rename(&path, &aside).unwrap();
    drop(dead);
    fs::rename(&aside, &path).unwrap();

    let listener = Listener::bind(&spec(path.clone()), SocketType::SEQPACKET);

    assert!(listener.is_ok(), "{listener:?}");
    assert!(connect(&path, SocketType::SEQPACKET).is_ok());
}

/// Runs `work` as another user, on a separate thread (users are per thread to the kernel); `None` where this
/// process may not.
fn as_user<R: Send>(uid: u32, work: impl FnOnce() -> R + Send) -> Option<R> {
    let become_user = || {
        let uid = rustix::process::Uid::from_raw(uid);
        rustix::thread::set_thread_res_uid(uid, uid, uid)
    };
    std::thread::scope(|scope| scope.spawn(|| become_user().ok().map(|()| work())).join().unwrap())
}

const STRANGER: u32 = 65_533;

/// A folder in which everybody may make sockets.
fn open_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o1777)).unwrap();
    folder
}

#[test]
fn socket_that_another_user_left_is_not_removed() {
    let folder = open_folder();
    let path = folder.path().join("s");
    let leave = || {
        let listener = Listener::bind(&spec(path.clone()), SocketType::SEQPACKET).unwrap();
        // As a server that is killed.
        std::mem::forget(listener._made);
    };
    if as_user(STRANGER, leave).is_none() {
        assert!(!rustix::process::geteuid().is_root(), "root may be everybody");
        return;
    }

    let second = Listener::bind(&spec(path.clone()), SocketType::SEQPACKET);

    assert!(matches!(second, Err(BindError::Foreign { uid: STRANGER, .. })), "{second:?}");
    assert!(path.exists());
}

#[test]
fn server_of_a_user_who_has_no_business_there_is_not_trusted() {
    let folder = open_folder();
    let path = folder.path().join("s");
    let bind = || Listener::bind(&spec(path.clone()), SocketType::SEQPACKET).unwrap();
    let Some(_theirs) = as_user(STRANGER, bind) else {
        assert!(!rustix::process::geteuid().is_root(), "root may be everybody");
        return;
    };

    let refused = connect_trusted(&path, SocketType::SEQPACKET).unwrap_err();
    std::os::unix::fs::chown(folder.path(), Some(STRANGER), None).unwrap();
    let accepted = connect_trusted(&path, SocketType::SEQPACKET);

    assert!(refused.to_string().contains("a server of user 65533"), "{refused}");
    assert!(accepted.is_ok(), "the folder is theirs: {accepted:?}");
}

#[test]
fn own_server_is_trusted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let _server = Listener::bind(&spec(path.clone()), SocketType::SEQPACKET).unwrap();

    assert!(connect_trusted(&path, SocketType::SEQPACKET).is_ok());
}

#[test]
fn anything_else_at_the_path_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "precious").unwrap();
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&file, &link).unwrap();

    for path in [&file, &link, &folder.path().to_owned()] {
        let result = Listener::bind(&spec(path.clone()), SocketType::STREAM);
        assert!(matches!(result, Err(BindError::Occupied { .. })), "{result:?}");
    }
    assert_eq!(fs::read(&file).unwrap(), b"precious");
}

#[test]
fn missing_folder_unknown_group_and_long_path_are_named() {
    let folder = tempfile::tempdir().unwrap();

    let missing = Listener::bind(&spec(folder.path().join("no/s")), SocketType::STREAM);
    let long = Listener::bind(&spec(folder.path().join("x".repeat(200))), SocketType::STREAM);
    let mut group = spec(folder.path().join("s"));
    group.group = Some("no-such-group-here".into());
    let group = Listener::bind(&group, SocketType::STREAM);

    assert!(matches!(missing, Err(BindError::MissingFolder { .. })));
    assert!(matches!(long, Err(BindError::TooLong(_))));
    assert!(matches!(group, Err(BindError::NoGroup(_))));
}
