import { randomUUID } from 'node:crypto'
import { describe, expect, test } from 'vitest'
import { createPasswords } from '../src/ops/passwords.ts'
import { createPerson } from '../src/ops/people.ts'
import { disablePerson } from '../src/ops/person-changes.ts'
import { readSession, startSessionByLink } from '../src/ops/sessions.ts'
import { setOwnPassword, signIn } from '../src/ops/sign-in.ts'
import { createSignInLink } from '../src/ops/sign-in-links.ts'
import { testDatabase } from './support/database.ts'

const { pool } = await testDatabase()

// Cheap, and counted: what is looked at here is when something is hashed, not how.
let hashed = 0
const passwords = createPasswords(async (password, salt) => {
  hashed += 1
  return Buffer.concat([Buffer.from(`${password}|${salt.toString('hex')}`), Buffer.alloc(32)]).subarray(0, 32)
})
const deps = { pool, passwords }
const by = { actor: 'ops', via: 'cli' }
const RIGHT = 'the right one'

async function addPerson(name: string): Promise<string> {
  const passwordHash = await passwords.hash(RIGHT)
  return (await createPerson(pool, { name, role: 'operator', passwordHash }, by))?.id ?? ''
}
/** Each test comes from addresses of its own. */
const anAddress = () => randomUUID()
const outcomes = async (tries: Promise<{ outcome: string }>[]) => {
  const counts: Record<string, number> = {}
  for (const { outcome } of await Promise.all(tries)) counts[outcome] = (counts[outcome] ?? 0) + 1
  return counts
}

describe('signing in', () => {
  test('the right password signs in, however the name is written', async () => {
    await addPerson('Mia')

    const signedIn = await signIn(deps, { name: ' mIA ', password: RIGHT, address: anAddress() })

    expect(signedIn.outcome).toBe('signed_in')
    const token = signedIn.outcome === 'signed_in' ? signedIn.token : ''
    expect((await readSession(pool, token))?.person.name).toBe('Mia')
  })

  test('each sign-in makes a session of its own', async () => {
    await addPerson('twice')
    const [one, two] = [
      await signIn(deps, { name: 'twice', password: RIGHT, address: anAddress() }),
      await signIn(deps, { name: 'twice', password: RIGHT, address: anAddress() }),
    ]

    expect(one).not.toEqual(two)
  })

  test('an unknown name, a wrong password, no password and a disabled person cost the same work for the same answer', async () => {
    await addPerson('wrong')
    await disablePerson(pool, await addPerson('disabled'), by)
    await createPerson(pool, { name: 'link only', role: 'operator' }, by)
    const tries = { wrong: 'a wrong one', disabled: RIGHT, 'link only': RIGHT, unknown: RIGHT, '<no name>': RIGHT }

    for (const [name, password] of Object.entries(tries)) {
      const before = hashed
      expect(await signIn(deps, { name, password, address: anAddress() })).toEqual({ outcome: 'refused' })
      expect(hashed - before, name).toBe(1)
    }
  })

  test('I12 a sign-in is audited, a refused one is not: strangers must not fill a log that only grows', async () => {
    await addPerson('audited')
    await signIn(deps, { name: 'audited', password: 'a wrong one', address: anAddress() })
    await signIn(deps, { name: 'audited', password: RIGHT, address: anAddress() })

    const { rows } = await pool.query(
      `select actor, via, action from audit_log where subject = 'person:audited' order by id offset 1`,
    )
    expect(rows).toEqual([{ actor: 'person:audited', via: 'page', action: 'sign_in' }])
  })
})

describe('trying passwords', () => {
  test('of 50 tries for one name at once 10 are looked at, the same for a name that nobody has', async () => {
    await addPerson('target')
    for (const name of ['target', 'nobody-here']) {
      const before = hashed

      const counts = await outcomes(
        Array.from({ length: 50 }, (_, index) => signIn(deps, { name, password: `guess ${index}`, address: anAddress() })),
      )

      expect(counts, name).toEqual({ refused: 10, throttled: 40 })
      expect(hashed - before, name).toBe(10)
    }
  })

  test('from one address 30 are looked at, and what is beyond counts against no name', async () => {
    const address = anAddress()
    const names = Array.from({ length: 60 }, (_, index) => `name-${index}`)

    const counts = await outcomes(names.map((name) => signIn(deps, { name, password: 'guess', address })))

    expect(counts).toEqual({ refused: 30, throttled: 30 })
    await addPerson('bystander')
    await Promise.all(Array.from({ length: 20 }, () => signIn(deps, { name: 'bystander', password: 'guess', address })))
    expect(await signIn(deps, { name: 'bystander', password: RIGHT, address: anAddress() })).toMatchObject({
      outcome: 'signed_in',
    })
  })

  test('a throttled answer says when to come back, and then the right password works', async () => {
    await addPerson('patient')
    for (let index = 0; index < 10; index += 1) await signIn(deps, { name: 'patient', password: 'guess', address: anAddress() })
    await pool.query(`update sign_in_attempts set since = since - interval '14 minutes' where kind = 'name'`)

    const answer = await signIn(deps, { name: 'patient', password: RIGHT, address: anAddress() })

    expect(answer.outcome).toBe('throttled')
    const seconds = answer.outcome === 'throttled' ? answer.retryAfterSeconds : 0
    expect(seconds).toBeGreaterThan(50)
    expect(seconds).toBeLessThanOrEqual(60)
    await pool.query(`update sign_in_attempts set since = since - interval '1 minute' where kind = 'name'`)
    expect(await signIn(deps, { name: 'patient', password: RIGHT, address: anAddress() })).toMatchObject({ outcome: 'signed_in' })
  })

  test('the right password forgets the slips before it', async () => {
    await addPerson('clumsy')
    const address = anAddress()
    for (let round = 0; round < 5; round += 1) {
      for (let index = 0; index < 9; index += 1) await signIn(deps, { name: 'clumsy', password: 'slip', address: anAddress() })
      expect(await signIn(deps, { name: 'clumsy', password: RIGHT, address })).toMatchObject({ outcome: 'signed_in' })
    }
    const { rows } = await pool.query(
      `select tries from sign_in_attempts where kind = 'address' and subject_sha256 = sha256($1::bytea)`,
      [Buffer.from(address)],
    )
    expect(rows).toEqual([{ tries: 0 }])
  })

  test('whoever is locked out by a stranger gets in by a one-time link', async () => {
    const person = await addPerson('locked-out')
    for (let index = 0; index < 10; index += 1)
      await signIn(deps, { name: 'locked-out', password: 'guess', address: anAddress() })

    const code = (await createSignInLink(pool, { person, minutes: 15 }, by)) ?? ''
    const token = (await startSessionByLink(pool, code)) ?? ''

    expect(await signIn(deps, { name: 'locked-out', password: RIGHT, address: anAddress() })).toMatchObject({
      outcome: 'throttled',
    })
    expect((await readSession(pool, token))?.person.name).toBe('locked-out')
  })

  test('I17 what was typed as a name is kept as a hash only', async () => {
    await signIn(deps, { name: 'hunter2hunter2', password: 'x', address: '192.0.2.7' })

    const { rows } = await pool.query(`select string_agg(sign_in_attempts::text, '') as all from sign_in_attempts`)
    expect(rows[0].all).not.toContain('hunter2')
    expect(rows[0].all).not.toContain('192.0.2.7')
  })
})

describe('the own password', () => {
  const sessionOf = async (name: string) => {
    const signedIn = await signIn(deps, { name, password: RIGHT, address: anAddress() })
    const token = signedIn.outcome === 'signed_in' ? signedIn.token : ''
    const session = await readSession(pool, token)
    if (!session) throw new Error('not signed in')
    return { token, session }
  }
  const given = (token: string, current: string) => ({
    token,
    current,
    next: 'quite another one',
    address: anAddress(),
    now: new Date(),
  })

  test('is changed by whoever knows it, who stays signed in here and nowhere else', async () => {
    await addPerson('changer')
    const [here, elsewhere] = [await sessionOf('changer'), await sessionOf('changer')]

    expect(await setOwnPassword(deps, here.session, given(here.token, RIGHT))).toEqual({ outcome: 'done' })

    expect(await readSession(pool, here.token)).toBeDefined()
    expect(await readSession(pool, elsewhere.token)).toBeUndefined()
    expect(await signIn(deps, { name: 'changer', password: RIGHT, address: anAddress() })).toEqual({ outcome: 'refused' })
    expect(await signIn(deps, { name: 'changer', password: 'quite another one', address: anAddress() })).toMatchObject({
      outcome: 'signed_in',
    })
  })

  test('is guessed through a stolen session no faster than by signing in', async () => {
    await addPerson('stolen')
    const { token, session } = await sessionOf('stolen')

    const counts = await outcomes(Array.from({ length: 30 }, () => setOwnPassword(deps, session, given(token, 'a guess'))))

    expect(counts).toEqual({ refused: 10, throttled: 20 })
  })

  test('can be set without the one before within an hour after a one-time link, and not later', async () => {
    const person = await addPerson('forgetful')
    const code = (await createSignInLink(pool, { person, minutes: 15 }, by)) ?? ''
    const token = (await startSessionByLink(pool, code)) ?? ''
    const session = await readSession(pool, token)
    if (!session) throw new Error('not signed in')

    const late = { ...given(token, ''), now: new Date(session.startedAt.getTime() + 3_600_000) }
    expect(await setOwnPassword(deps, session, late)).toEqual({ outcome: 'refused' })
    expect(await setOwnPassword(deps, session, given(token, ''))).toEqual({ outcome: 'done' })
    expect(await signIn(deps, { name: 'forgetful', password: 'quite another one', address: anAddress() })).toMatchObject({
      outcome: 'signed_in',
    })
  })
})
