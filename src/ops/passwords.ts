import { argon2, randomBytes, timingSafeEqual } from 'node:crypto'
import { z } from 'zod'

/** A new password: its length alone makes it strong. The same letters typed on another keyboard are the same password. */
export const newPassword = z
  .string()
  .refine((text) => text.isWellFormed(), 'must be text')
  .transform(normal)
  .refine((text) => [...text].length >= 12, 'must have at least 12 characters')
  .refine((text) => [...text].length <= 200, 'must have at most 200 characters')

/** What a hash costs; raised here, old ones are made anew when their persons sign in. */
const COST = { memory: 19_456, passes: 2, parallelism: 1 }
const HASH_BYTES = 32
const SALT_BYTES = 16
/** Each takes 19 MiB and a thread of the four that files and names are looked up with. */
const MOST_AT_ONCE = 2
const MOST_WAITING = 20

/** Too many passwords are being checked; the same may work a moment later. */
export class PasswordsBusyError extends Error {
  override name = 'PasswordsBusyError'
}

interface Checked {
  isRight: boolean
  /** To be kept instead of the old hash, which was made at less cost. */
  newHash?: string | undefined
}

export interface Passwords {
  hash(password: string): Promise<string>
  /** Takes as long with no hash, as for a name that nobody has, as with one. */
  check(password: string, hash: string | undefined): Promise<Checked>
}

type Derive = (password: string, salt: Buffer, cost: typeof COST) => Promise<Buffer>

/** Hashes passwords off the main thread, so many at once; the others wait, and too many are refused (PasswordsBusyError). */
export function createPasswords(derive: Derive = argon2id): Passwords {
  let running = 0
  const waiting: (() => void)[] = []
  // Of no password: nobody knows what would give these bytes.
  const decoy = textOf(COST, randomBytes(SALT_BYTES), randomBytes(HASH_BYTES))

  const compute = async (password: string, salt: Buffer, cost: typeof COST): Promise<Buffer> => {
    if (running >= MOST_AT_ONCE) {
      if (waiting.length >= MOST_WAITING) throw new PasswordsBusyError('too many passwords are being checked')
      // Whoever ends hands its place on.
      await new Promise<void>((done) => waiting.push(done))
    } else running += 1
    try {
      return await derive(normal(password), salt, cost)
    } finally {
      const next = waiting.shift()
      if (next) next()
      else running -= 1
    }
  }
  const hash = async (password: string) => {
    const salt = randomBytes(SALT_BYTES)
    return textOf(COST, salt, await compute(password, salt, COST))
  }
  return {
    hash,
    async check(password, text) {
      const { cost, salt, hash: expected } = readText(text ?? decoy)
      const given = await compute(password, salt, cost)
      const isRight = timingSafeEqual(given, expected) && text !== undefined
      const isOld = Object.entries(COST).some(([name, value]) => cost[name as keyof typeof COST] !== value)
      return isRight && isOld ? { isRight, newHash: await hash(password) } : { isRight }
    },
  }
}

const argon2id: Derive = (message, nonce, cost) =>
  new Promise((done, fail) =>
    argon2('argon2id', { message, nonce, tagLength: HASH_BYTES, ...cost }, (error, hash) => (error ? fail(error) : done(hash))),
  )

function normal(text: string): string {
  return text.normalize('NFKC')
}

/** PHC string format, as other programs read and write it. */
function textOf({ memory, passes, parallelism }: typeof COST, salt: Buffer, hash: Buffer): string {
  const plain = (bytes: Buffer) => bytes.toString('base64').replace(/=+$/, '')
  return `$argon2id$v=19$m=${memory},t=${passes},p=${parallelism}$${plain(salt)}$${plain(hash)}`
}

const PHC = /^\$argon2id\$v=19\$m=(\d{1,7}),t=(\d{1,2}),p=(\d)\$([A-Za-z0-9+/]{11,})\$([A-Za-z0-9+/]{43})$/

function readText(text: string): { cost: typeof COST; salt: Buffer; hash: Buffer } {
  const [, memory, passes, parallelism, salt, hash] = PHC.exec(text) ?? []
  if (!salt || !hash) throw new Error('a stored password hash cannot be read')
  return {
    cost: { memory: Number(memory), passes: Number(passes), parallelism: Number(parallelism) },
    salt: Buffer.from(salt, 'base64'),
    hash: Buffer.from(hash, 'base64'),
  }
}
