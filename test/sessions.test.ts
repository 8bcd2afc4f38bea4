import { createHash } from 'node:crypto'
import { describe, expect, test } from 'vitest'
import { createPerson } from '../src/ops/people.ts'
import {
  endedCookie,
  endOtherSessions,
  endSession,
  forgetOldSignIns,
  listOwnSessions,
  readSession,
  sessionCookie,
  startSession,
  startSessionByLink,
  tokenOfCookies,
} from '../src/ops/sessions.ts'
import { createSignInLink, endSignInLink, readSignInLink } from '../src/ops/sign-in-links.ts'
import { testDatabase } from './support/database.ts'

const { pool } = await testDatabase()

const by = { actor: 'ops', via: 'cli' }
const HASH = 'a hash that nothing reads'

async function addPerson(name: string): Promise<string> {
  return (await createPerson(pool, { name, role: 'operator', passwordHash: HASH }, by))?.id ?? ''
}
const signedIn = async (person: string) => (await startSession(pool, { person, passwordHash: HASH })) ?? ''
const sha256 = (text: string) => createHash('sha256').update(text).digest()
const change = (token: string, set: string) => pool.query(`update sessions set ${set} where token_sha256 = $1`, [sha256(token)])
const actionsOf = async (name: string) =>
  (await pool.query(`select action from audit_log where subject = $1 order by id`, [`person:${name}`])).rows.map(
    (row) => row.action,
  )

describe('a session', () => {
  test('I17 names its person, and the database holds nothing that could be used as its cookie', async () => {
    const token = await signedIn(await addPerson('ann'))

    expect(token).toMatch(/^[\w-]{43}$/)
    expect(await readSession(pool, token)).toMatchObject({ person: { name: 'ann', role: 'operator' }, startedBy: 'password' })
    const { rows } = await pool.query(
      `select (select string_agg(sessions::text, '') from sessions) || (select string_agg(audit_log::text, '') from audit_log) as all`,
    )
    expect(rows[0].all).not.toContain(token)
  })

  test('ends 7 days after its start, however busy it is', async () => {
    const token = await signedIn(await addPerson('busy'))
    const { rows } = await pool.query(
      "select expires_at - created_at = interval '7 days' as is_week from sessions where token_sha256 = $1",
      [sha256(token)],
    )
    expect(rows).toEqual([{ is_week: true }])

    await change(token, `expires_at = now() + interval '1 minute'`)
    expect(await readSession(pool, token)).toBeDefined()
    await change(token, `expires_at = now()`)
    expect(await readSession(pool, token)).toBeUndefined()
  })

  test('ends after 12 hours without a request', async () => {
    const token = await signedIn(await addPerson('idle'))

    await change(token, `last_seen_at = now() - interval '11 hours 59 minutes'`)
    expect(await readSession(pool, token)).toBeDefined()
    await change(token, `last_seen_at = now() - interval '12 hours'`)
    expect(await readSession(pool, token)).toBeUndefined()
  })

  test('names nobody who is disabled, by whatever way that was written', async () => {
    const person = await addPerson('switched-off')
    const token = await signedIn(person)

    await pool.query('update people set disabled_at = now() where id = $1', [person])

    expect(await readSession(pool, token)).toBeUndefined()
  })

  test('a burst of requests writes the time of use at most once a minute', async () => {
    const token = await signedIn(await addPerson('bursty'))
    const written = async () =>
      (await pool.query('select xmin, last_seen_at from sessions where token_sha256 = $1', [sha256(token)])).rows[0]
    const first = await written()

    await Promise.all(Array.from({ length: 10 }, () => readSession(pool, token)))
    const second = await written()
    await change(token, `last_seen_at = now() - interval '61 s'`)
    await Promise.all(Array.from({ length: 10 }, () => readSession(pool, token)))
    const third = await written()

    expect(second).toEqual(first)
    expect(third.last_seen_at.getTime()).toBeGreaterThanOrEqual(first.last_seen_at.getTime())
  })

  test('a page that refreshes itself keeps nobody signed in', async () => {
    const token = await signedIn(await addPerson('away-for-long'))
    await change(token, `last_seen_at = now() - interval '11 hours'`)

    expect(await readSession(pool, token, { isUse: false })).toBeDefined()

    await change(token, `last_seen_at = last_seen_at - interval '61 minutes'`)
    expect(await readSession(pool, token)).toBeUndefined()
  })

  test('a sign-out ends it at once, and ten at once are audited as one', async () => {
    const token = await signedIn(await addPerson('leaving'))

    await Promise.all(Array.from({ length: 10 }, () => endSession(pool, token)))

    expect(await readSession(pool, token)).toBeUndefined()
    expect(await actionsOf('leaving')).toEqual(['create_person', 'sign_in', 'sign_out'])
  })

  test('signing out everywhere else leaves this session and those of other people', async () => {
    const [person, other] = [await addPerson('many'), await addPerson('other')]
    const [mine, phone, theirs] = [await signedIn(person), await signedIn(person), await signedIn(other)]

    expect(await listOwnSessions(pool, mine)).toMatchObject([{ is_this: false }, { is_this: true }])
    expect(await endOtherSessions(pool, mine)).toBe(1)
    expect(await endOtherSessions(pool, mine)).toBe(0)

    const left = await Promise.all([mine, phone, theirs].map((token) => readSession(pool, token)))
    expect(left.map((session) => session?.person.name)).toEqual(['many', undefined, 'other'])
    expect(await actionsOf('many')).toEqual(['create_person', 'sign_in', 'sign_in', 'sign_out_others'])
  })

  test('what nobody can use any more is forgotten, and nothing else', async () => {
    const person = await addPerson('forgotten')
    const [fresh, old, idle] = [await signedIn(person), await signedIn(person), await signedIn(person)]
    await change(old, `expires_at = now()`)
    await change(idle, `last_seen_at = now() - interval '12 hours'`)
    await createSignInLink(pool, { person, minutes: 15 }, by)
    await createSignInLink(pool, { person, minutes: 15 }, by)
    await pool.query(
      `update sign_in_links set expires_at = now() - interval '1 day' where code_sha256 = (select min(code_sha256) from sign_in_links)`,
    )

    await forgetOldSignIns(pool)

    const { rows } = await pool.query(
      `select (select array_agg(token_sha256) from sessions where person = $1) as tokens, (select count(*)::int from sign_in_links) as links`,
      [person],
    )
    expect(rows).toEqual([{ tokens: [sha256(fresh)], links: 1 }])
  })
})

describe('a one-time link', () => {
  test('signs in once when twenty use it at once', async () => {
    const code = (await createSignInLink(pool, { person: await addPerson('raced'), minutes: 15 }, by)) ?? ''

    const tokens = await Promise.all(Array.from({ length: 20 }, () => startSessionByLink(pool, code)))

    const [token, ...more] = tokens.filter((it) => it !== undefined)
    expect(more).toEqual([])
    expect(await readSession(pool, token ?? '')).toMatchObject({ person: { name: 'raced' }, startedBy: 'link' })
    expect(await actionsOf('raced')).toEqual(['create_person', 'create_sign_in_link', 'sign_in_by_link'])
  })

  test('is not used up by looking at it, nor by a sign-in that breaks', async () => {
    const code = (await createSignInLink(pool, { person: await addPerson('broken'), minutes: 15 }, by)) ?? ''
    expect(await readSignInLink(pool, code)).toEqual({ name: 'broken' })
    const breaking = await pool.connect()
    await breaking.query('begin')
    await startSessionByLink(breaking, code)
    await breaking.query('rollback')
    breaking.release()

    expect(await readSignInLink(pool, code)).toEqual({ name: 'broken' })
    expect(await startSessionByLink(pool, code)).toBeDefined()
    expect(await readSignInLink(pool, code)).toBeUndefined()
  })

  test('lets nobody in when it is too old, ended or made up', async () => {
    const person = await addPerson('late')
    const old = (await createSignInLink(pool, { person, minutes: 15 }, by)) ?? ''
    await pool.query('update sign_in_links set expires_at = now() where person = $1', [person])
    const ended = (await createSignInLink(pool, { person, minutes: 15 }, by)) ?? ''
    await endSignInLink(pool, ended)

    for (const code of [old, ended, 'x'.repeat(43), '']) {
      expect(await readSignInLink(pool, code)).toBeUndefined()
      expect(await startSessionByLink(pool, code)).toBeUndefined()
    }
  })

  test('I17 the database holds nothing that could be used as one', async () => {
    const code = (await createSignInLink(pool, { person: await addPerson('linked'), minutes: 15 }, by)) ?? ''

    const { rows } = await pool.query(
      `select (select string_agg(sign_in_links::text, '') from sign_in_links) || (select string_agg(audit_log::text, '') from audit_log) as all`,
    )
    expect(code).toMatch(/^[\w-]{43}$/)
    expect(rows[0].all).not.toContain(code)
  })
})

describe('the cookie', () => {
  const TOKEN = 'A'.repeat(43)

  test('C-68 is out of reach of scripts and of other sites, and over HTTPS of everything but HTTPS', () => {
    expect(sessionCookie(TOKEN, true)).toBe(`__Host-oncehook=${TOKEN}; Path=/; HttpOnly; SameSite=Lax; Secure`)
    expect(sessionCookie(TOKEN, false)).toBe(`oncehook=${TOKEN}; Path=/; HttpOnly; SameSite=Lax`)
    expect(endedCookie(true)).toBe('__Host-oncehook=; Path=/; HttpOnly; SameSite=Lax; Secure; Max-Age=0')
  })

  test('is found among others, and only under its own name', () => {
    expect(tokenOfCookies(`a=1; oncehook=${TOKEN}; b=2`, false)).toBe(TOKEN)
    expect(tokenOfCookies(`oncehook=${TOKEN}`, true)).toBeUndefined()
    expect(tokenOfCookies(`x__Host-oncehook=${TOKEN}`, true)).toBeUndefined()
    expect(tokenOfCookies('oncehook=short', false)).toBeUndefined()
    expect(tokenOfCookies(undefined, false)).toBeUndefined()
  })
})
