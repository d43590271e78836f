//! SHA-256 and the verification of Ed25519 signatures out of zig's standard library, for C and C++.
//!
//! Compiled twice for x86-64 and aarch64: for any processor, and for those with instructions of SHA-256, whose
//! functions have other names; `contract/hash.cc` chooses among them when it runs.

const builtin = @import("builtin");
const std = @import("std");

const Sha256 = std.crypto.hash.sha2.Sha256;
const Ed25519 = std.crypto.sign.Ed25519;

/// Whether this is the second compilation.
const accelerated = switch (builtin.cpu.arch) {
    .x86_64 => builtin.cpu.hasAll(.x86, &.{ .sha, .avx2 }),
    .aarch64 => builtin.cpu.has(.aarch64, .sha2),
    else => false,
};

// What `contract/hash.h` reserves for the state.
comptime {
    std.debug.assert(@sizeOf(Sha256) <= 128 and @alignOf(Sha256) <= 16);
}

fn sha256Init(state: *Sha256) callconv(.c) void {
    state.* = Sha256.init(.{});
}

fn sha256Update(state: *Sha256, data: [*]const u8, size: usize) callconv(.c) void {
    state.update(data[0..size]);
}

fn sha256Final(state: *Sha256, digest: *[Sha256.digest_length]u8) callconv(.c) void {
    state.final(digest);
}

/// 1 where the signature is the key's of the message, without its cofactor as in RFC 8032, section 5.1.7.
fn ed25519Verify(
    key: *const [Ed25519.PublicKey.encoded_length]u8,
    message: [*]const u8,
    size: usize,
    signature: *const [Ed25519.Signature.encoded_length]u8,
) callconv(.c) c_int {
    const public = Ed25519.PublicKey.fromBytes(key.*) catch return 0;
    Ed25519.Signature.fromBytes(signature.*).verifyStrict(message[0..size], public) catch return 0;
    return 1;
}

comptime {
    if (accelerated) {
        @export(&sha256Update, .{ .name = "edgetlm_sha256_update_accelerated", .visibility = .hidden });
    } else {
        @export(&sha256Init, .{ .name = "edgetlm_sha256_init", .visibility = .hidden });
        @export(&sha256Update, .{ .name = "edgetlm_sha256_update", .visibility = .hidden });
        @export(&sha256Final, .{ .name = "edgetlm_sha256_final", .visibility = .hidden });
        @export(&ed25519Verify, .{ .name = "edgetlm_ed25519_verify", .visibility = .hidden });
    }
}
