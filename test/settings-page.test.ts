import { randomUUID } from 'node:crypto'
import supertest from 'supertest'
import { describe, expect, test } from 'vitest'
import { createPasswords } from '../src/ops/passwords.ts'
import { createPerson, findPerson } from '../src/ops/people.ts'
import { startSession, startSessionByLink } from '../src/ops/sessions.ts'
import { createSignInLink } from '../src/ops/sign-in-links.ts'
import { authenticate, createToken } from '../src/ops/tokens.ts'
import { createView } from '../src/ops/views.ts'
import { testDatabase } from './support/database.ts'
import { testPages } from './support/page.ts'

const database = await testDatabase()
const { pool } = database
const SECRET = 'whsec_shop_secret_of_the_tests'

let hashed = 0
const passwords = createPasswords(async (password, salt) => {
  hashed += 1
  return Buffer.concat([Buffer.from(`${password}|${salt.toString('hex')}`), Buffer.alloc(32)]).subarray(0, 32)
})
const { app, get, submit } = await testPages(
  database,
  { sources: { shop: { provider: 'stripe', secrets: [SECRET] } }, ops: { hidePersonalData: true } },
  { passwords, fingerprints: (secrets) => secrets.map(() => 'fp_9c1e'), sendsPerMinute: 110 },
)

const by = { actor: 'tester', via: 'test' }
const auditOf = async (subject: string) =>
  (await pool.query('select actor, via, action, reason from audit_log where subject = $1 order by id', [subject])).rows
const idOf = async (name: string) => (await findPerson(pool, name))?.id ?? ''
const asPerson = (cookie: string) => (path: string, fields: Record<string, string>) =>
  supertest(app)
    .post(path)
    .set({ cookie, 'sec-fetch-site': 'same-origin' })
    .type('form')
    .send({ form: randomUUID(), ...fields })

describe('how a person wants the page', () => {
  test('is kept, and shows on the next page', async () => {
    const saved = await submit('/ops/settings/look', { theme: 'dark', time_zone: 'Europe/Berlin' })

    expect(saved.status).toBe(303)
    const page = await get(saved.headers.location ?? '')
    expect(page.text).toContain('data-theme="dark"')
    expect(page.text).toContain('Saved.')
    expect(page.text).toContain('<span data-zone>Europe/Berlin</span>')
    expect(page.text).not.toContain('data-shortcuts')
    await submit('/ops/settings/look', { theme: 'system', time_zone: 'UTC', shortcuts: 'on' })
    expect((await get('/ops/settings')).text).toContain('data-shortcuts')
  })

  test('what is no zone is refused beside its field, and what no field is called is refused', async () => {
    const wrong = await submit('/ops/settings/look', { theme: 'dark', time_zone: 'Mars/Olympus' })

    expect(wrong.status).toBe(400)
    expect(wrong.text).toContain('<title>Error: You · Settings')
    expect(wrong.text).toContain('id="error-time_zone">must be a time zone such as Europe/Berlin')
    expect((await submit('/ops/settings/look', { theme: 'dark', time_zone: 'UTC', role: 'operator' })).status).toBe(400)
    expect((await findPerson(pool, 'rob'))?.role).toBe('reader')
  })
})

describe('the own password', () => {
  const fields = { new_password: 'correct horse battery', new_password_again: 'correct horse battery' }

  test('is set after a one-time link without one before, and changed only by who knows it', async () => {
    const pat = await createPerson(pool, { name: 'pat', role: 'reader' }, by)
    const code = (await createSignInLink(pool, { person: pat?.id ?? '', minutes: 5 }, by)) ?? ''
    const byLink = asPerson(`oncehook=${await startSessionByLink(pool, code)}`)
    expect((await byLink('/ops/settings/password', fields)).status).toBe(303)
    expect(await auditOf('person:pat')).toContainEqual({
      actor: 'person:pat',
      via: 'page',
      action: 'set_password',
      reason: null,
    })

    const { rows } = await pool.query(`select id, password_hash from people where name = 'pat'`)
    const cookie = `oncehook=${await startSession(pool, { person: rows[0].id, passwordHash: rows[0].password_hash })}`
    const post = asPerson(cookie)
    const page = await supertest(app).get('/ops/settings').set('cookie', cookie)
    expect(page.text).toContain('name="current_password"')
    const wrong = await post('/ops/settings/password', { ...fields, current_password: 'not it' })
    expect([wrong.status, wrong.text.includes('id="error-current_password">is wrong')]).toEqual([400, true])
    expect(wrong.text).not.toContain('correct horse')
    expect((await post('/ops/settings/password', { ...fields, current_password: 'correct horse battery' })).status).toBe(303)
  })

  test('too short a one, or two that differ, are refused before anything is hashed', async () => {
    const before = hashed

    const short = await submit('/ops/settings/password', { new_password: 'short', new_password_again: 'short' })
    const differing = await submit('/ops/settings/password', { ...fields, new_password_again: 'correct horse bakery' })

    expect([short.status, differing.status]).toEqual([400, 400])
    expect(short.text).toContain('must have at least 12 characters')
    expect(differing.text).toContain('is not the same as the new password')
    expect(short.text + differing.text).not.toContain('value="correct')
    expect(hashed).toBe(before)
  })

  test('signing out everywhere else leaves this session alone', async () => {
    const code = (await createSignInLink(pool, { person: await idOf('mia'), minutes: 5 }, by)) ?? ''
    const elsewhere = `oncehook=${await startSessionByLink(pool, code)}`
    expect((await get('/ops/settings')).text).toContain('Sign out everywhere else')

    const answer = await submit('/ops/settings/sign-out-others', {})

    expect((await get(answer.headers.location ?? '')).text).toContain('Signed out elsewhere: 1.')
    expect((await supertest(app).get('/ops/settings').set('cookie', elsewhere)).status).toBe(303)
  })
})

describe('people', () => {
  test('a new person gets a link that is shown once: neither a reload nor a second click makes or shows another', async () => {
    const fields = { form: randomUUID(), name: 'Ann', role: 'operator' }

    const made = await submit('/ops/settings/people/add', fields)
    const again = await submit('/ops/settings/people/add', fields)

    const [, code = ''] = /http:\/\/127\.0\.0\.1:\d+\/ops\/sign-in\?code=([\w-]{43})/.exec(made.text) ?? []
    expect(made.status).toBe(200)
    expect([again.status, again.headers.location]).toEqual([303, `/ops/settings/people/${await idOf('Ann')}?done=${fields.form}`])
    expect((await get(again.headers.location ?? '')).text).not.toContain('code=')
    expect(await auditOf('person:Ann')).toEqual([
      { actor: 'person:mia', via: 'page', action: 'create_person', reason: null },
      { actor: 'person:mia', via: 'page', action: 'create_sign_in_link', reason: null },
    ])
    const { rows } = await pool.query('select string_agg(form_submissions::text, $1) as all from form_submissions', [''])
    expect(rows[0].all).not.toContain(code)
    expect(await startSessionByLink(pool, code)).toBeDefined()
  })

  test('a name that is taken is said beside its field', async () => {
    const taken = await submit('/ops/settings/people/add', { name: 'aNN', role: 'reader' })

    expect([taken.status, taken.text.includes('id="error-name">is somebody else’s')]).toEqual([400, true])
    expect(taken.text).toContain('value="aNN"')
  })

  test('roles and access are changed with a reason, and the last operator stays', async () => {
    const ann = await idOf('Ann')
    const unsaid = await submit(`/ops/settings/people/${ann}/disable`, { reason: ' ' })
    const role = await submit(`/ops/settings/people/${ann}/role`, { role: 'reader', role_reason: 'on leave' })
    const disabled = await submit(`/ops/settings/people/${ann}/disable`, { reason: 'has left' })
    const last = await submit(`/ops/settings/people/${await idOf('mia')}/disable`, { reason: 'me too' })

    expect([unsaid.status, role.status, disabled.status, last.status]).toEqual([400, 303, 303, 409])
    expect(last.text).toContain('mia is the last operator')
    expect((await auditOf('person:Ann')).slice(3)).toEqual([
      { actor: 'person:mia', via: 'page', action: 'set_role', reason: 'on leave' },
      { actor: 'person:mia', via: 'page', action: 'disable_person', reason: 'has left' },
    ])
    expect((await submit(`/ops/settings/people/${ann}/link`, {})).status).toBe(409)
    expect((await submit(`/ops/settings/people/${ann}/enable`, { reason: 'is back' })).status).toBe(303)
    expect((await submit('/ops/settings/people/999999/enable', { reason: 'x' })).status).toBe(404)
  })

  test('a reader sees nobody and changes nobody: text says why, and so does each form', async () => {
    const ann = await idOf('Ann')

    for (const path of ['/ops/settings/people', `/ops/settings/people/${ann}`]) {
      const page = await get(path, 'reader')
      expect(page.text).toContain('needs role operator')
      expect(page.text).not.toContain('Ann')
    }
    for (const [path, fields] of [
      ['add', { name: 'Eve', role: 'operator' }],
      [`${ann}/role`, { role: 'operator', role_reason: 'x' }],
      [`${ann}/disable`, { reason: 'x' }],
      [`${ann}/enable`, { reason: 'x' }],
      [`${ann}/link`, {}],
    ] as const)
      expect((await submit(`/ops/settings/people/${path}`, { ...fields }, 'reader')).status, path).toBe(403)
    expect(await findPerson(pool, 'Eve')).toBeUndefined()
  })
})

describe('tokens', () => {
  test('a new token is shown once: a second click makes no other and shows none', async () => {
    const fields = { form: randomUUID(), name: 'shop <b>', role: 'sender', expires_in: '90d' }

    const made = await submit('/ops/settings/tokens/make', fields)
    const again = await submit('/ops/settings/tokens/make', fields)
    const list = await get(again.headers.location ?? '')

    const [token = ''] = /och_[\w-]{43}/.exec(made.text) ?? []
    expect(await authenticate(pool, token)).toEqual({ name: 'shop <b>', role: 'sender' })
    expect(again.status).toBe(303)
    expect(list.text).toContain('it was shown once')
    expect(list.text).toContain('shop &lt;b&gt;')
    expect(list.text).not.toContain('och_')
    const { rows } = await pool.query(`select (select count(*)::int from api_tokens) as tokens,
      (select string_agg(form_submissions::text, '') from form_submissions) as kept`)
    expect(rows[0].tokens).toBe(1)
    expect(rows[0].kept).not.toContain(token.slice(4))
  })

  test('is revoked with a reason, and refused from then on', async () => {
    const token = await createToken(pool, { name: 'leaky', role: 'reader' })
    const { rows } = await pool.query(`select id from api_tokens where name = 'leaky'`)
    const path = `/ops/settings/tokens/${rows[0].id}`

    expect((await get(path)).text).toContain(`oncehook token revoke ${rows[0].id} --reason`)
    expect((await submit(`${path}/revoke`, { reason: '' })).status).toBe(400)
    expect((await submit(`${path}/revoke`, { reason: 'in a log' })).status).toBe(303)

    expect(await authenticate(pool, token)).toBeUndefined()
    expect((await get(path)).text).toContain('by person:mia: in a log')
    expect((await get('/ops/settings/tokens/999999')).status).toBe(404)
    expect((await get('/ops/settings/tokens/x')).status).toBe(404)
  })

  test('a reader sees and changes none', async () => {
    const { rows } = await pool.query('select id from api_tokens limit 1')

    expect((await get('/ops/settings/tokens', 'reader')).text).not.toContain('leaky')
    expect((await get(`/ops/settings/tokens/${rows[0].id}`, 'reader')).text).toContain('needs role operator')
    expect((await submit('/ops/settings/tokens/make', { name: 'x', role: 'operator', expires_in: '' }, 'reader')).status).toBe(
      403,
    )
    expect((await submit(`/ops/settings/tokens/${rows[0].id}/revoke`, { reason: 'x' }, 'reader')).status).toBe(403)
  })
})

describe('views and configuration', () => {
  test('a view is deleted once, by an operator', async () => {
    const view = await createView(pool, { screen: 'sends', name: 'Bounced', query: 'status=bounced' }, by)
    const path = `/ops/settings/views/${view?.id}/delete`
    expect((await get('/ops/settings/views', 'reader')).text).not.toContain('Delete the view')

    expect((await submit(path, {}, 'reader')).status).toBe(403)
    const first = await submit(path, {})
    const second = await submit(path, {})

    expect((await get(first.headers.location ?? '')).text).toContain('The view is deleted.')
    expect((await get(second.headers.location ?? '')).text).toContain('The view was deleted before.')
    expect(await auditOf(`view:${view?.id}`)).toMatchObject([{ action: 'create_view' }, { action: 'delete_view' }])
  })

  test('I17 the configuration shows what is in force, and of secrets only fingerprints', async () => {
    const { text } = await get('/ops/settings/configuration', 'reader')

    for (const shown of ['shop', 'Stripe', 'fp_9c1e', 'masked for readers', 'exclusive', '110']) expect(text).toContain(shown)
    expect(text).not.toContain(SECRET)
  })
})

describe('each page of the settings', () => {
  test.each([
    '/ops/settings',
    '/ops/settings/people',
    '/ops/settings/tokens',
    '/ops/settings/views',
    '/ops/settings/configuration',
  ])('%s has one heading, no ID twice, and for each form but the personal ones its API call', async (path) => {
    const { status, text } = await get(path)

    expect(status).toBe(200)
    expect(text.match(/<h1>/g)).toHaveLength(1)
    const ids = [...text.matchAll(/ id="([^"]+)"/g)].map(([, id]) => id)
    expect(new Set(ids).size).toBe(ids.length)
    const forms = [...text.matchAll(/<form action="\/ops\/settings\/[^"]+" method="post".*?<\/form>/gs)].map(([form]) => form)
    if (path !== '/ops/settings') expect(forms.every((form) => form.includes('Do this by API'))).toBe(true)
  })
})
