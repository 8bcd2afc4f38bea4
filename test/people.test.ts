import { describe, expect, test } from 'vitest'
import {
  createPerson,
  ensureFirstOperator,
  findPerson,
  listPeople,
  personName,
  saveSettings,
  settingsOf,
} from '../src/ops/people.ts'
import { disablePerson, enablePerson, setPassword, setRole } from '../src/ops/person-changes.ts'
import { readSession, startSession, startSessionByLink } from '../src/ops/sessions.ts'
import { createSignInLink } from '../src/ops/sign-in-links.ts'
import { testDatabase } from './support/database.ts'
import { untilWaiting } from './support/sends.ts'

const { pool } = await testDatabase()

const by = { actor: 'person:mia', via: 'page' }
const HASH = 'a hash that nothing reads'

async function addPerson(name: string, role: 'reader' | 'operator' = 'operator'): Promise<string> {
  const person = await createPerson(pool, { name, role, passwordHash: HASH }, by)
  if (!person) throw new Error(`${name} is taken`)
  return person.id
}

/** Each test about the last operator starts from nobody. */
async function nobody(): Promise<void> {
  await pool.query('delete from sessions')
  await pool.query('delete from sign_in_links')
  await pool.query('delete from people')
}

const auditOf = async (name: string) =>
  (
    await pool.query('select actor, via, action, reason, before, after from audit_log where subject = $1 order by id', [
      `person:${name}`,
    ])
  ).rows

describe('adding people', () => {
  test('I12 a new person is audited with role, and neither the audit nor the list holds the hash', async () => {
    await createPerson(pool, { name: 'Ann', role: 'reader', passwordHash: 'secret-hash' }, { ...by, reason: 'joins' })

    expect(await auditOf('Ann')).toEqual([
      {
        actor: 'person:mia',
        via: 'page',
        action: 'create_person',
        reason: 'joins',
        before: null,
        after: { role: 'reader', has_password: true },
      },
    ])
    expect(JSON.stringify(await listPeople(pool, { limit: 50 }))).not.toContain('secret-hash')
  })

  test('a name belongs to one person however it is written, also when twenty ask for it at once', async () => {
    const names = Array.from({ length: 20 }, (_, index) => (index % 2 === 0 ? 'racer' : 'RACER'))

    const made = await Promise.all(names.map((name) => createPerson(pool, { name, role: 'reader' }, by)))

    expect(made.filter((person) => person !== undefined)).toHaveLength(1)
    const { rows } = await pool.query(`select (select count(*)::int from people where lower(name) = 'racer') as people,
      (select count(*)::int from audit_log where lower(subject) = 'person:racer') as audits`)
    expect(rows).toEqual([{ people: 1, audits: 1 }])
    expect(await findPerson(pool, 'Racer')).toMatchObject({ role: 'reader', has_password: false })
  })

  test.each(['', ' ', 'a  b', 'a\u0000b', 'a\u202eb', 'person:mia', '<b>', 'x'.repeat(101)])('%j is no name', (name) => {
    expect(personName.safeParse(name).success).toBe(false)
  })

  test.each(['mia', 'Åsa Öberg', 'mia@example.com', '李雷', 'ci-2.x_y+z'])('%j is a name', (name) => {
    expect(personName.parse(` ${name} `)).toBe(name.normalize('NFC'))
  })

  test('people are listed page by page, each once', async () => {
    await nobody()
    for (const name of ['p1', 'p2', 'p3']) await addPerson(name)

    const first = await listPeople(pool, { limit: 2 })
    const [id] = JSON.parse(Buffer.from(first.next_cursor ?? '', 'base64url').toString())
    const second = await listPeople(pool, { limit: 2, cursor: [id] })

    expect(first.people.map((person) => person.name)).toEqual(['p1', 'p2'])
    expect(second.people.map((person) => person.name)).toEqual(['p3'])
    expect(second.next_cursor).toBeNull()
  })

  test('the first operator is made once when ten starts want one at once, and later starts find them', async () => {
    await nobody()

    const found = await Promise.all(Array.from({ length: 10 }, () => ensureFirstOperator(pool)))

    const later = await ensureFirstOperator(pool)
    expect(new Set([...found, later].map((person) => person?.id)).size).toBe(1)
    expect(later).toMatchObject({ name: 'operator', role: 'operator', has_password: false })
    const { rows } = await pool.query('select count(*)::int as people from people')
    expect(rows).toEqual([{ people: 1 }])
  })

  test('where people are known, a start makes nobody and takes the operator who has been there longest', async () => {
    await nobody()
    await addPerson('reader-first', 'reader')
    await addPerson('mia')
    await addPerson('zoe')

    expect(await ensureFirstOperator(pool)).toMatchObject({ name: 'mia' })
    await disablePerson(pool, (await findPerson(pool, 'mia'))?.id ?? '', by)
    expect(await ensureFirstOperator(pool)).toMatchObject({ name: 'zoe' })
  })
})

describe('the last operator', () => {
  test('of two operators who disable each other at once one stays', async () => {
    for (let round = 0; round < 10; round += 1) {
      await nobody()
      const [ann, bob] = [await addPerson('ann'), await addPerson('bob')]

      const outcomes = await Promise.all([disablePerson(pool, ann, by), disablePerson(pool, bob, by)])

      expect(outcomes.sort()).toEqual(['done', 'last_operator'])
      const { rows } = await pool.query('select count(*)::int as operators from people where disabled_at is null')
      expect(rows).toEqual([{ operators: 1 }])
    }
  })

  test('a disabling and a demotion that wait for the same row are looked at one after the other', async () => {
    await nobody()
    const [ann, bob] = [await addPerson('ann'), await addPerson('bob')]
    const holder = await pool.connect()
    await holder.query('begin')
    await holder.query('select from people where id = $1 for no key update', [ann])

    const both = Promise.all([disablePerson(pool, ann, by), setRole(pool, bob, 'reader', by)])
    await untilWaiting(pool, 2)
    await holder.query('commit')
    holder.release()

    expect((await both).sort()).toEqual(['done', 'last_operator'])
  })

  test('the last operator is neither disabled nor demoted, and a refusal is not audited', async () => {
    await nobody()
    const ann = await addPerson('only')
    await addPerson('a-reader', 'reader')
    const before = await auditOf('only')

    expect(await disablePerson(pool, ann, by)).toBe('last_operator')
    expect(await setRole(pool, ann, 'reader', by)).toBe('last_operator')

    expect(await auditOf('only')).toEqual(before)
    expect(await findPerson(pool, 'only')).toMatchObject({ role: 'operator', disabled_at: null })
  })
})

describe('changing people', () => {
  test('I12 each change says who, why, before and after; a repeat changes nothing and is not audited again', async () => {
    await addPerson('keeps-one')
    const id = await addPerson('changed', 'reader')

    expect(await setRole(pool, id, 'operator', { ...by, reason: 'on call' })).toBe('done')
    expect(await setRole(pool, id, 'operator', by)).toBe('unchanged')
    expect(await disablePerson(pool, id, by)).toBe('done')
    expect(await disablePerson(pool, id, by)).toBe('unchanged')
    expect(await enablePerson(pool, id, by)).toBe('done')
    expect(await setRole(pool, '999999999', 'reader', by)).toBe('not_found')

    const [, ...changes] = await auditOf('changed')
    expect(changes.map(({ action, reason, before, after }) => ({ action, reason, before, after }))).toEqual([
      {
        action: 'set_role',
        reason: 'on call',
        before: { role: 'reader', disabled: false },
        after: { role: 'operator', disabled: false },
      },
      {
        action: 'disable_person',
        reason: null,
        before: { role: 'operator', disabled: false },
        after: { role: 'operator', disabled: true },
      },
      {
        action: 'enable_person',
        reason: null,
        before: { role: 'operator', disabled: true },
        after: { role: 'operator', disabled: false },
      },
    ])
  })

  test('twenty who set the same role at once change it once', async () => {
    const id = await addPerson('once', 'reader')

    const outcomes = await Promise.all(Array.from({ length: 20 }, () => setRole(pool, id, 'operator', by)))

    expect(outcomes.filter((outcome) => outcome === 'done')).toHaveLength(1)
    expect((await auditOf('once')).filter(({ action }) => action === 'set_role')).toHaveLength(1)
  })

  test('a role counts from the next request of a session on', async () => {
    await addPerson('keeps-two')
    const id = await addPerson('demoted')
    const token = (await startSession(pool, { person: id, passwordHash: HASH })) ?? ''

    await setRole(pool, id, 'reader', by)

    expect((await readSession(pool, token))?.person.role).toBe('reader')
  })

  test('disabling a person ends sessions and links at once and for good', async () => {
    await addPerson('keeps-three')
    const id = await addPerson('leaver')
    const token = (await startSession(pool, { person: id, passwordHash: HASH })) ?? ''
    const code = (await createSignInLink(pool, { person: id, minutes: 15 }, by)) ?? ''

    await disablePerson(pool, id, by)

    expect(await readSession(pool, token)).toBeUndefined()
    expect(await startSessionByLink(pool, code)).toBeUndefined()
    expect(await createSignInLink(pool, { person: id, minutes: 15 }, by)).toBeUndefined()
    await enablePerson(pool, id, by)
    expect(await readSession(pool, token)).toBeUndefined()
    expect(await startSessionByLink(pool, code)).toBeUndefined()
  })

  test('another password ends all sessions but the one that is kept', async () => {
    const id = await addPerson('rekeyed')
    const [kept, other] = [
      (await startSession(pool, { person: id, passwordHash: HASH })) ?? '',
      (await startSession(pool, { person: id, passwordHash: HASH })) ?? '',
    ]

    expect(await setPassword(pool, id, 'hash two', by, { keptToken: kept })).toBe(true)

    expect(await readSession(pool, kept)).toBeDefined()
    expect(await readSession(pool, other)).toBeUndefined()
    expect((await auditOf('rekeyed')).at(-1)).toEqual({
      actor: 'person:mia',
      via: 'page',
      action: 'set_password',
      reason: null,
      before: null,
      after: null,
    })
  })

  test('of two who change the same password at once from the one before, one does', async () => {
    const id = await addPerson('two-tabs')

    const set = await Promise.all(['one', 'two'].map((hash) => setPassword(pool, id, hash, by, { wasHash: HASH })))

    expect(set.sort()).toEqual([false, true])
  })

  test('a sign-in with the password before, that runs while it is changed, leaves no session', async () => {
    const id = await addPerson('racing')
    const holder = await pool.connect()
    await holder.query('begin')
    await holder.query('update people set password_hash = $2 where id = $1', [id, 'another'])

    const signingIn = startSession(pool, { person: id, passwordHash: HASH })
    await untilWaiting(pool, 1)
    await holder.query('commit')
    holder.release()

    expect(await signingIn).toBeUndefined()
    expect((await pool.query('select from sessions where person = $1', [id])).rowCount).toBe(0)
  })

  test('a sign-in that is first ends with the password change that waited for it', async () => {
    const id = await addPerson('overtaken')
    const holder = await pool.connect()
    await holder.query('begin')
    const token = (await startSession(holder, { person: id, passwordHash: HASH })) ?? ''

    const changing = setPassword(pool, id, 'another', by)
    await untilWaiting(pool, 1)
    await holder.query('commit')
    holder.release()
    await changing

    expect(await readSession(pool, token)).toBeUndefined()
  })
})

describe('settings', () => {
  test('are kept as they are saved, and what is stored wrongly is as for a new person', async () => {
    const id = await addPerson('tasteful')
    const token = (await startSession(pool, { person: id, passwordHash: HASH })) ?? ''

    expect((await readSession(pool, token))?.person.settings).toEqual({ theme: 'system', timeZone: 'UTC', shortcuts: true })
    await saveSettings(pool, id, { theme: 'dark', timeZone: 'Europe/Berlin', shortcuts: false })
    expect((await readSession(pool, token))?.person.settings).toEqual({
      theme: 'dark',
      timeZone: 'Europe/Berlin',
      shortcuts: false,
    })
    expect(settingsOf({ theme: 'pink', timeZone: 'Mars/Olympus' })).toEqual({ theme: 'system', timeZone: 'UTC', shortcuts: true })
  })
})
