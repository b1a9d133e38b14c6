//! A network card made ready as a distribution's DHCP client does it, and files over HTTP by plain sockets.
#![allow(unsafe_code, reason = "raw Linux ioctls of network interfaces")]

use std::fs;
use std::io::{Read, Write};
use std::mem::zeroed;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

/// ioctls of sockets (linux/sockios.h).
const SET_ADDRESS: u64 = 0x8916;
const SET_MASK: u64 = 0x891c;
const SET_FLAGS: u64 = 0x8914;
const SET_MTU: u64 = 0x8922;
const ADD_ROUTE: u64 = 0x890b;
/// DHCP (RFC 2131): the beginning of options, and those that are used.
const MAGIC: [u8; 4] = [0x63, 0x82, 0x53, 0x63];
const OPTIONS: usize = 236 + 4;
const MASK: u8 = 1;
const ROUTER: u8 = 3;
const MTU: u8 = 26;
const ADDRESS: u8 = 50;
const KIND: u8 = 53;
const SERVER: u8 = 54;
const WANTED: u8 = 55;
const END: u8 = 255;
/// Kinds of messages.
const DISCOVER: u8 = 1;
const OFFER: u8 = 2;
const REQUEST: u8 = 3;
const ACK: u8 = 5;
/// How long an answer may take, and how often is asked.
const PATIENCE: Duration = Duration::from_secs(2);
const ATTEMPTS: usize = 15;
/// How long a connection may be silent.
const SILENCE: Duration = Duration::from_secs(20);

/// What a network gave.
#[derive(Debug, Clone, Copy)]
pub struct Lease {
    pub address: Ipv4Addr,
    mask: Ipv4Addr,
    pub router: Ipv4Addr,
    /// Most bytes of a packet, where the network says so.
    mtu: Option<u16>,
}

fn interface(name: &str) -> Result<libc::ifreq> {
    // SAFETY: all-zero is a valid value of this plain structure.
    let mut request: libc::ifreq = unsafe { zeroed() };
    ensure!(name.len() < request.ifr_name.len(), "{name} is no interface's name");
    for (place, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *place = byte.cast_signed();
    }
    Ok(request)
}

fn socket_address(address: Ipv4Addr) -> libc::sockaddr {
    // SAFETY: as above.
    let mut plain: libc::sockaddr = unsafe { zeroed() };
    plain.sa_family = libc::sa_family_t::try_from(libc::AF_INET).unwrap_or(0);
    // The port's two bytes, then the address.
    for (place, byte) in plain.sa_data.iter_mut().skip(2).zip(address.octets()) {
        *place = byte.cast_signed();
    }
    plain
}

fn ask<T>(socket: &UdpSocket, request: u64, argument: &mut T, what: &str) -> Result<()> {
    // SAFETY: each of these requests takes the structure that its caller gives, which lives over the call.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), request as _, std::ptr::from_mut(argument)) };
    if done < 0 {
        return Err(std::io::Error::last_os_error()).with_context(|| format!("cannot {what}"));
    }
    Ok(())
}

/// Turns an interface on.
pub fn up(name: &str) -> Result<()> {
    let socket = UdpSocket::bind("0.0.0.0:0").context("cannot make a socket")?;
    let mut request = interface(name)?;
    request.ifr_ifru.ifru_flags = libc::c_short::try_from(libc::IFF_UP | libc::IFF_RUNNING).unwrap_or(0);
    ask(&socket, SET_FLAGS, &mut request, &format!("turn {name} on"))
}

/// The only interface that is no loop.
pub fn card() -> Result<String> {
    let names = fs::read_dir("/sys/class/net").context("cannot list interfaces")?;
    let mut names = names.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.find(|name| name != "lo").context("there is no network card")
}

/// Gets an address from the network, and has it.
pub fn configure(card: &str) -> Result<Lease> {
    up(card)?;
    let lease = lease(card)?;
    let socket = UdpSocket::bind("0.0.0.0:0").context("cannot make a socket")?;
    let mut request = interface(card)?;
    request.ifr_ifru.ifru_addr = socket_address(lease.address);
    ask(&socket, SET_ADDRESS, &mut request, "set an address")?;
    request.ifr_ifru.ifru_netmask = socket_address(lease.mask);
    ask(&socket, SET_MASK, &mut request, "set a mask")?;
    if let Some(mtu) = lease.mtu {
        request.ifr_ifru.ifru_mtu = mtu.into();
        ask(&socket, SET_MTU, &mut request, "set the size of packets")?;
    }
    // SAFETY: all-zero is a valid value of this plain structure.
    let mut route: libc::rtentry = unsafe { zeroed() };
    route.rt_dst = socket_address(Ipv4Addr::UNSPECIFIED);
    route.rt_genmask = socket_address(Ipv4Addr::UNSPECIFIED);
    route.rt_gateway = socket_address(lease.router);
    // RTF_UP | RTF_GATEWAY
    route.rt_flags = 3;
    ask(&socket, ADD_ROUTE, &mut route, "add a route")?;
    Ok(lease)
}

fn lease(card: &str) -> Result<Lease> {
    let mac =
        fs::read_to_string(format!("/sys/class/net/{card}/address")).context("cannot read an address")?;
    let mac: Vec<u8> = mac.trim().split(':').filter_map(|byte| u8::from_str_radix(byte, 16).ok()).collect();
    let socket = UdpSocket::bind("0.0.0.0:68").context("cannot bind DHCP's port")?;
    socket.set_broadcast(true)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    // SAFETY: the name and its length are those of a buffer that lives over the call.
    let bound = unsafe {
        let size = libc::socklen_t::try_from(card.len()).unwrap_or(0);
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_BINDTODEVICE,
            card.as_ptr().cast(),
            size,
        )
    };
    ensure!(bound == 0, "cannot bind to {card}: {}", std::io::Error::last_os_error());
    for _ in 0..ATTEMPTS {
        let Some(offer) = exchange(&socket, &mac, DISCOVER, &[], OFFER)? else { continue };
        let chosen = [option(ADDRESS, &offer.address.octets()), option(SERVER, &offer.server)].concat();
        if let Some(given) = exchange(&socket, &mac, REQUEST, &chosen, ACK)? {
            let Answer { address, mask, router, mtu, .. } = given;
            return Ok(Lease { address, mask, router, mtu });
        }
    }
    bail!("nobody gives {card} an address")
}

struct Answer {
    address: Ipv4Addr,
    mask: Ipv4Addr,
    router: Ipv4Addr,
    mtu: Option<u16>,
    server: [u8; 4],
}

fn option(kind: u8, content: &[u8]) -> Vec<u8> {
    let size = u8::try_from(content.len()).unwrap_or(0);
    [&[kind, size], content].concat()
}

/// Sends a message and waits for its answer; none if that does not come.
fn exchange(socket: &UdpSocket, mac: &[u8], kind: u8, more: &[u8], wanted: u8) -> Result<Option<Answer>> {
    let mut message = vec![0; OPTIONS];
    message[..4].copy_from_slice(&[1, 1, 6, 0]);
    message[4..8].copy_from_slice(b"gpvm");
    // Answers to all: this host has no address yet.
    message[10] = 0x80;
    message[28..34].copy_from_slice(mac.get(..6).context("an address has 6 bytes")?);
    message[236..240].copy_from_slice(&MAGIC);
    message.extend(
        [option(KIND, &[kind]), more.to_vec(), option(WANTED, &[MASK, ROUTER, MTU]), vec![END]].concat(),
    );
    message.resize(message.len().max(300), 0);
    socket.send_to(&message, "255.255.255.255:67").context("cannot send to all")?;
    let start = Instant::now();
    let mut read = [0; 1500];
    while start.elapsed() < PATIENCE {
        let Ok((size, _)) = socket.recv_from(&mut read) else { return Ok(None) };
        if let Some(answer) = parse(&read[..size], wanted) {
            return Ok(Some(answer));
        }
    }
    Ok(None)
}

fn parse(message: &[u8], wanted: u8) -> Option<Answer> {
    if message.get(4..8)? != b"gpvm" || message.get(236..240)? != MAGIC {
        return None;
    }
    let four = |bytes: &[u8]| <[u8; 4]>::try_from(bytes.get(..4)?).ok();
    let (mut kind, mut mask, mut router, mut mtu, mut server) = (0, None, None, None, None);
    let mut rest = message.get(OPTIONS..)?;
    while let [option, size, content @ ..] = rest {
        if *option == END {
            break;
        }
        let content = content.get(..usize::from(*size))?;
        match *option {
            KIND => kind = *content.first()?,
            MASK => mask = four(content),
            ROUTER => router = four(content),
            MTU => mtu = Some(u16::from_be_bytes(content.try_into().ok()?)),
            SERVER => server = four(content),
            _ => {}
        }
        rest = rest.get(2 + usize::from(*size)..)?;
    }
    let address = Ipv4Addr::from(four(message.get(16..)?)?);
    let (mask, router) = (Ipv4Addr::from(mask?), Ipv4Addr::from(router?));
    (kind == wanted).then_some(Answer { address, mask, router, mtu, server: server? })
}

/// Fetches what a server has at a path.
pub fn fetch(server: Ipv4Addr, port: u16, path: &str) -> Result<Vec<u8>> {
    let address = SocketAddr::V4(SocketAddrV4::new(server, port));
    let mut stream =
        TcpStream::connect_timeout(&address, SILENCE).with_context(|| format!("no {address}"))?;
    stream.set_read_timeout(Some(SILENCE))?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).context("cannot ask")?;
    let mut read = Vec::new();
    stream.read_to_end(&mut read).context("cannot read what was asked for")?;
    let end = read.windows(4).position(|bytes| bytes == b"\r\n\r\n").context("this is no answer of HTTP")?;
    let head = String::from_utf8_lossy(&read[..end]).into_owned();
    ensure!(head.starts_with("HTTP/1.0 200"), "{path}: {head}");
    let content = read.split_off(end + 4);
    let size = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")?.parse().ok());
    ensure!(size == Some(content.len()), "{path}: {} bytes of {size:?}", content.len());
    Ok(content)
}

/// Answers one connection by what `content` gives for its path.
pub fn answer(mut stream: TcpStream, content: impl FnOnce(&str) -> Result<Vec<u8>>) -> Result<()> {
    stream.set_read_timeout(Some(SILENCE))?;
    let mut asked = Vec::new();
    let mut byte = [0];
    while !asked.ends_with(b"\r\n\r\n") {
        ensure!(asked.len() < 4096, "a request without an end");
        ensure!(stream.read(&mut byte)? == 1, "half a request");
        asked.extend(byte);
    }
    let asked = String::from_utf8_lossy(&asked).into_owned();
    let path = asked.split(' ').nth(1).context("no path")?;
    let (status, content) = match content(path) {
        Ok(content) => ("200 OK", content),
        Err(error) => ("500 Error", format!("{error:#}").into_bytes()),
    };
    let head = format!("HTTP/1.0 {status}\r\nContent-Length: {}\r\n\r\n", content.len());
    stream.write_all(head.as_bytes())?;
    stream.write_all(&content)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn what_is_served_is_what_is_fetched() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            for stream in listener.incoming().take(2) {
                let content =
                    |path: &str| if path == "/a" { Ok(vec![7; 100_000]) } else { bail!("nothing there") };
                answer(stream.unwrap(), content).unwrap();
            }
        });
        assert_eq!(fetch(Ipv4Addr::LOCALHOST, port, "/a").unwrap(), vec![7; 100_000]);
        assert!(fetch(Ipv4Addr::LOCALHOST, port, "/b").unwrap_err().to_string().contains("500"));
        server.join().unwrap();
    }

    #[test]
    fn answer_of_dhcp_is_read_and_others_are_not() {
        let mut message = vec![0; OPTIONS];
        message[4..8].copy_from_slice(b"gpvm");
        message[16..20].copy_from_slice(&[10, 0, 0, 2]);
        message[236..240].copy_from_slice(&MAGIC);
        let options = [
            (KIND, &[OFFER][..]),
            (MASK, &[255, 0, 0, 0]),
            (ROUTER, &[10, 0, 0, 1]),
            (MTU, &[0xff, 0xf0]),
            (SERVER, &[10, 0, 0, 9]),
        ];
        options.iter().for_each(|(kind, content)| message.extend(option(*kind, content)));
        message.push(END);
        let answer = parse(&message, OFFER).unwrap();
        assert_eq!(
            (answer.address, answer.router, answer.mtu, answer.server),
            ([10, 0, 0, 2].into(), [10, 0, 0, 1].into(), Some(65_520), [10, 0, 0, 9])
        );
        assert!(parse(&message, ACK).is_none());
        assert!(parse(&message[..OPTIONS + 2], OFFER).is_none());
    }
}
