import { createHmac } from 'node:crypto'
import type { Db } from '../db.ts'

/** The key of this installation's fingerprints, as the migration made it; it never changes. */
export async function readFingerprintKey(db: Db): Promise<Buffer> {
  const { rows } = await db.query<{ fingerprint_key: Buffer }>('select fingerprint_key from installation')
  if (!rows[0]) throw new Error('the table installation is empty: its row, which the migration made, must never be deleted')
  return rows[0].fingerprint_key
}

/** Tells a secret from all others without telling it: 8 hex digits, the same after each rotation and in each process. */
export function fingerprintOf(key: Buffer, secret: string): string {
  return createHmac('sha256', key).update(secret).digest('hex').slice(0, 8)
}

/** The fingerprints of a source's secrets, in their order. */
export type Fingerprints = (secrets: readonly string[]) => readonly string[]

/** Makes the fingerprints of each list of secrets once, so that no request pays for them. */
export function createFingerprints(key: Buffer): Fingerprints {
  // By the list itself: one that a reload has replaced goes with its configuration.
  const made = new WeakMap<readonly string[], readonly string[]>()
  return (secrets) => {
    const known = made.get(secrets) ?? secrets.map((secret) => fingerprintOf(key, secret))
    made.set(secrets, known)
    return known
  }
}
