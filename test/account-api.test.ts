import supertest from 'supertest'
import { describe, expect, test } from 'vitest'
import { testApi } from './support/api.ts'
import { testDatabase } from './support/database.ts'

const database = await testDatabase()
const { pool } = database
const { get, post, call, audited, app } = await testApi(database)
const withToken = (token: string) => supertest(app).get('/v1/sends').set('authorization', `Bearer ${token}`)

describe('who may do what', () => {
  const calls = [
    ['get', '/v1/tokens', undefined, { reader: 403, operator: 200, sender: 403 }],
    ['post', '/v1/tokens', {}, { reader: 403, operator: 400, sender: 403 }],
    ['post', '/v1/tokens/999/revoke', { reason: 'x' }, { reader: 403, operator: 404, sender: 403 }],
    ['get', '/v1/people', undefined, { reader: 403, operator: 200, sender: 403 }],
    ['post', '/v1/people', {}, { reader: 403, operator: 400, sender: 403 }],
    ['post', '/v1/people/999/link', undefined, { reader: 403, operator: 404, sender: 403 }],
    ['post', '/v1/people/999/disable', { reason: 'x' }, { reader: 403, operator: 404, sender: 403 }],
    ['post', '/v1/people/999/enable', { reason: 'x' }, { reader: 403, operator: 404, sender: 403 }],
    ['post', '/v1/people/999/role', { role: 'reader', reason: 'x' }, { reader: 403, operator: 404, sender: 403 }],
    ['get', '/v1/views', undefined, { reader: 200, operator: 200, sender: 403 }],
    ['post', '/v1/views', {}, { reader: 403, operator: 400, sender: 403 }],
    ['delete', '/v1/views/999', undefined, { reader: 403, operator: 404, sender: 403 }],
    ['get', '/v1/audit', undefined, { reader: 200, operator: 200, sender: 403 }],
  ] as const

  test.each(calls)('%s %s answers each role as the contract says', async (method, path, body, expected) => {
    const statuses: Record<string, number> = {}
    for (const by of ['reader', 'operator', 'sender'] as const) statuses[by] = (await call(method, path, body, by)).status

    expect(statuses).toEqual(expected)
  })
})

describe('tokens', () => {
  test('are told once, work at once, and end at once', async () => {
    const made = await post('/v1/tokens', { name: 'till', role: 'sender', expires_in: '90d' })
    const { token, id } = made.body
    const before = (await withToken(token)).status

    const revoked = await post(`/v1/tokens/${id}/revoke`, { reason: 'till was sold' })
    const again = await post(`/v1/tokens/${id}/revoke`, { reason: 'twice' })

    expect([made.status, made.body.name, made.body.role]).toEqual([201, 'till', 'sender'])
    expect(token).toMatch(/^och_[\w-]{43}$/)
    // A sender may not list: it is known, but for another role.
    expect([before, (await withToken(token)).status]).toEqual([403, 401])
    expect([revoked.body, again.body]).toEqual([{ outcome: 'done' }, { outcome: 'unchanged' }])
    expect(await audited(`token:${id}`)).toEqual([
      { actor: 'token:mia', via: 'api', action: 'create_token', reason: null },
      { actor: 'token:mia', via: 'api', action: 'revoke_token', reason: 'till was sold' },
    ])
    const listed = await get('/v1/tokens', 'operator')
    expect(listed.body.tokens[0]).toMatchObject({ id, revoked_by: 'token:mia', revoked_reason: 'till was sold' })
    expect(listed.text).not.toContain(token)
  })

  test('I18 are listed in pages, newest first', async () => {
    const ids: string[] = []
    for (const name of ['page-1', 'page-2', 'page-3']) ids.push((await post('/v1/tokens', { name, role: 'reader' })).body.id)

    const first = await get('/v1/tokens?limit=2', 'operator')
    const second = await get(`/v1/tokens?limit=1&cursor=${first.body.next_cursor}`, 'operator')

    const idsOf = (body: { tokens: { id: string }[] }) => body.tokens.map(({ id }) => id)
    expect([...idsOf(first.body), ...idsOf(second.body)]).toEqual(ids.reverse())
  })

  test.each([
    { name: 'x', role: 'owner' },
    { name: '', role: 'reader' },
    { name: 'x', role: 'reader', expires_in: 'tomorrow' },
    { name: 'x', role: 'reader', token: 'och_mine' },
    { name: 'x', role: 'reader', id: '1', revoked_at: null },
  ])('%j is refused', async (body) => {
    expect((await post('/v1/tokens', body)).body).toMatchObject({ status: 400, code: 'invalid_request' })
  })
})

describe('people', () => {
  const add = async (name: string, role = 'reader') => (await post('/v1/people', { name, role })).body.id as string

  test('are added, get a link, another role, and are shut out and let in again', async () => {
    await add('Ada', 'operator')
    const made = await post('/v1/people', { name: 'Bob', role: 'operator' })
    const { id } = made.body

    const link = await post(`/v1/people/${id}/link`)
    const role = await post(`/v1/people/${id}/role`, { role: 'reader', reason: 'on leave' })
    const disabled = await post(`/v1/people/${id}/disable`, { reason: 'has left' })
    const noLink = await post(`/v1/people/${id}/link`)
    const enabled = await post(`/v1/people/${id}/enable`, { reason: 'is back' })

    expect([made.status, made.body]).toMatchObject([201, { name: 'Bob', role: 'operator', has_password: false }])
    expect(link.body).toEqual({ path: expect.stringMatching(/^\/ops\/sign-in\?code=[\w-]{43}$/), minutes: 15 })
    expect([role.body, disabled.body, enabled.body]).toEqual([{ outcome: 'done' }, { outcome: 'done' }, { outcome: 'done' }])
    expect([noLink.status, noLink.body.code]).toEqual([404, 'not_found'])
    expect((await audited('person:Bob')).map(({ action, reason }) => [action, reason])).toEqual([
      ['create_person', null],
      ['create_sign_in_link', null],
      ['set_role', 'on leave'],
      ['disable_person', 'has left'],
      ['enable_person', 'is back'],
    ])
  })

  test('keep one operator, of two who go at once too', async () => {
    await pool.query(`update people set disabled_at = now() where disabled_at is null`)
    const [one, two] = [await add('Cy', 'operator'), await add('Di', 'operator')]

    const answers = await Promise.all([one, two].map((id) => post(`/v1/people/${id}/disable`, { reason: 'x' })))

    expect(answers.map(({ status, body }) => [status, body.code ?? body.outcome]).sort()).toEqual([
      [200, 'done'],
      [409, 'last_operator'],
    ])
  })

  test('have one name each, however it is written', async () => {
    await add('Eve')

    expect((await post('/v1/people', { name: 'EVE', role: 'reader' })).body).toMatchObject({ status: 409, code: 'name_taken' })
    expect((await post('/v1/people', { name: 'Fay', role: 'sender' })).status).toBe(400)
    expect((await post('/v1/people', { name: 'Fay', role: 'reader', password_hash: 'x' })).status).toBe(400)
  })
})

describe('views', () => {
  const view = { screen: 'sends', name: 'Bounced today', query: 'status=bounced&since=24h' }

  test('are kept once under a name, listed, and removed', async () => {
    const answers = await Promise.all([post('/v1/views', view), post('/v1/views', view)])
    await post('/v1/views', { ...view, screen: 'events' })
    const made = answers.find(({ status }) => status === 201)?.body

    const listed = await get('/v1/views?screen=sends')
    const removed = await call('delete', `/v1/views/${made.id}`)
    const again = await call('delete', `/v1/views/${made.id}`)

    expect(answers.map(({ status }) => status).sort()).toEqual([201, 409])
    expect(answers.find(({ status }) => status === 409)?.body.code).toBe('name_taken')
    expect(listed.body).toEqual({
      views: [{ ...view, id: made.id, created_at: made.created_at, created_by: 'token:mia' }],
      next_cursor: null,
    })
    expect([removed.body, again.status]).toEqual([{ outcome: 'done' }, 404])
    expect((await audited(`view:${made.id}`)).map(({ action }) => action)).toEqual(['create_view', 'delete_view'])
  })

  test.each([
    { ...view, screen: 'settings' },
    { ...view, name: ' ' },
    { ...view, name: 'a\u202eb' },
    { ...view, query: 'q=\u0000' },
    { ...view, query: 'x'.repeat(4_001) },
    { ...view, created_by: 'token:other' },
  ])('%j is refused', async (body) => {
    expect((await post('/v1/views', body)).status).toBe(400)
  })
})

describe('the audit', () => {
  test('is listed newest first, filtered, in pages', async () => {
    await pool.query('truncate audit_log')
    for (const number of [1, 2, 3])
      await pool.query(
        `insert into audit_log (actor, via, action, subject, reason, before, after) values ('person:ada', 'page', $1, $2, 'why', $3, $4)`,
        [number === 2 ? 'retry' : 'sent', `send:k${number}`, { state: 'needs_review' }, { state: 'sent' }],
      )

    const first = await get('/v1/audit?actor=person:ada&limit=2')
    const second = await get(`/v1/audit?actor=person:ada&limit=2&cursor=${first.body.next_cursor}`)

    const subjectsOf = (body: { audit: { subject: string }[] }) => body.audit.map(({ subject }) => subject)
    expect([subjectsOf(first.body), subjectsOf(second.body)]).toEqual([['send:k3', 'send:k2'], ['send:k1']])
    expect(second.body).toMatchObject({
      audit: [{ actor: 'person:ada', via: 'page', action: 'sent', reason: 'why', before: { state: 'needs_review' } }],
      next_cursor: null,
    })
    expect(subjectsOf((await get('/v1/audit?action=retry')).body)).toEqual(['send:k2'])
    expect(subjectsOf((await get('/v1/audit?subject=send:k1')).body)).toEqual(['send:k1'])
    expect(subjectsOf((await get('/v1/audit?since=2999-01-01')).body)).toEqual([])
    expect((await get('/v1/audit?who=ada')).status).toBe(400)
  })

  test.each(['post', 'delete'] as const)('can not be changed: %s is 405', async (method) => {
    const { status, headers } = await call(method, '/v1/audit')

    expect([status, headers.allow]).toEqual([405, 'GET, HEAD'])
  })
})
