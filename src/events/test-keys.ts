import { createPrivateKey, createPublicKey, type KeyObject } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { z } from 'zod'

/** Public keys of a development start, one for each kind of signature that its samples are made with. */
export type TestKeys = Readonly<Record<'rsa' | 'ecdsa' | 'ed25519', KeyObject>>

const file = z.object({ rsa: z.string(), ec: z.string(), ed25519: z.string() })

/** Reads the public keys to the private ones of a file that `oncehook start` has made. */
export function readTestKeys(path: string): TestKeys {
  const { rsa, ec, ed25519 } = file.parse(JSON.parse(readFileSync(path, 'utf8')))
  const publicKey = (pem: string) => createPublicKey(createPrivateKey(pem))
  return { rsa: publicKey(rsa), ecdsa: publicKey(ec), ed25519: publicKey(ed25519) }
}
