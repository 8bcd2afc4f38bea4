import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type IncomingMessage, request } from 'node:http'
import type { AddressInfo } from 'node:net'
import express, { Router } from 'express'
import supertest from 'supertest'
import { expect, test } from 'vitest'
import { z } from 'zod'
import { createLog } from '../src/log.ts'
import { type Action, addAction } from '../src/ops/page/action.ts'
import { createAssets } from '../src/ops/page/assets.ts'
import { html } from '../src/ops/page/html.ts'
import { type PageServer, screen, signedIn } from '../src/ops/page/page.ts'
import { testDatabase } from './support/database.ts'
import { testPages } from './support/page.ts'

const database = await testDatabase()
const { pool } = database
const { cookies } = await testPages(database)

const body = z.strictObject({ amount: z.string().regex(/^\d+$/, 'must be a number') })
let handled: string[] = []
let until: Promise<void> | undefined

/** A page with one form, which notes what it was asked. */
function appWith(more: Partial<Action<typeof body>> = {}) {
  const server: PageServer = {
    pool,
    reads: pool,
    log: createLog('silent', 'test'),
    publicUrl: 'https://hooks.example.com',
    now: () => new Date('2026-11-29T14:00:00Z'),
    storage: { awaySince: undefined },
    frame: { assets: createAssets(), version: '0.0.0', hasSandbox: false },
  }
  const insecure = { ...server, publicUrl: undefined }
  const router = Router()
  router.use(signedIn(insecure, (_req, res) => void res.status(401).end()))
  router.get(
    '/ops/form',
    screen(insecure, () => ({ title: 'Form', main: html`<h1>Form</h1>` })),
  )
  addAction(router, server, '/ops/do', {
    roles: ['operator'],
    body,
    async handle({ body, actor }) {
      await until
      handled.push(`${actor} ${body.amount}`)
      return { to: '/ops/form?q=1#there', notice: { text: `Saved <${body.amount}>`, link: { href: '/ops', label: 'Reopen' } } }
    },
    ...more,
  })
  return express().use(router)
}
const app = appWith()
const fresh = () => ({ form: randomUUID(), amount: '7' })
const post = (fields: Record<string, string>, headers: Record<string, string> = { 'sec-fetch-site': 'same-origin' }, on = app) =>
  supertest(on).post('/ops/do').set('cookie', cookies.operator).set(headers).type('form').send(fields)

test('C-68 a change is asked for by POST from a page of ours, and by nothing else', async () => {
  handled = []
  const foreign: Record<string, string>[] = [
    {},
    { 'sec-fetch-site': 'cross-site' },
    { 'sec-fetch-site': 'same-site' },
    { 'sec-fetch-site': 'none' },
    { origin: 'https://evil.example' },
    { origin: 'null' },
    { 'sec-fetch-site': 'cross-site', origin: 'https://hooks.example.com' },
  ]
  for (const headers of foreign) expect((await post(fresh(), headers)).status, JSON.stringify(headers)).toBe(403)
  for (const method of ['get', 'put', 'patch', 'delete'] as const) {
    const answer = await supertest(app)
      [method]('/ops/do?amount=7')
      .set('cookie', cookies.operator)
      .set('sec-fetch-site', 'same-origin')
    expect(answer.status, method).toBe(405)
  }
  expect((await supertest(app).post('/ops/do').set('sec-fetch-site', 'same-origin').type('form').send(fresh())).status).toBe(401)
  expect(handled).toEqual([])

  expect((await post(fresh())).status).toBe(303)
  expect((await post(fresh(), { origin: 'https://hooks.example.com' })).status).toBe(303)
  expect(handled).toEqual(['person:mia 7', 'person:mia 7'])
})

test('a form that is sent twice is carried out once, and both get its answer', async () => {
  handled = []
  const fields = fresh()

  const first = await post(fields)
  const second = await post(fields)

  expect(first.headers.location).toBe(`/ops/form?q=1&done=${fields.form}#there`)
  expect(second.headers.location).toBe(first.headers.location)
  expect(handled).toEqual(['person:mia 7'])
})

test('C-68 the ID of a form is answered at the path that it was sent to, and at no other', async () => {
  handled = []
  const fields = fresh()
  await post(fields)

  const answer = await supertest(express().use('/another', appWith()))
    .post('/another/ops/do')
    .set({ cookie: cookies.operator, 'sec-fetch-site': 'same-origin' })
    .type('form')
    .send(fields)

  expect(answer.status).toBe(409)
  expect(answer.headers.location).toBeUndefined()
  expect(handled).toEqual(['person:mia 7'])
})

test('I18 who may not do it is answered before the body comes', async () => {
  const server = createServer(appWith({ withFile: true, limit: 5_000_000 })).listen(0)
  const { port } = server.address() as AddressInfo
  const asked = request({
    port,
    method: 'POST',
    path: '/ops/do',
    headers: {
      cookie: cookies.reader,
      'sec-fetch-site': 'same-origin',
      'content-type': 'multipart/form-data; boundary=x',
      'content-length': '4900000',
    },
  })
  asked.on('error', () => undefined)
  asked.flushHeaders()

  const [answer] = (await once(asked, 'response')) as [IncomingMessage]
  asked.destroy()
  server.close()

  expect(answer.statusCode).toBe(403)
})

test('of twenty clicks at once one is carried out', async () => {
  handled = []
  const gate = Promise.withResolvers<void>()
  until = gate.promise
  const fields = fresh()

  const statuses: number[] = []
  const clicks = Array.from({ length: 20 }, () => post(fields).then(({ status }) => statuses.push(status)))
  // All others are answered while the first is still being carried out.
  await expect.poll(() => statuses.length).toBe(19)
  expect(new Set(statuses)).toEqual(new Set([409]))
  gate.resolve()
  until = undefined
  await Promise.all(clicks)

  expect(statuses[19]).toBe(303)
  expect(handled).toEqual(['person:mia 7'])
})

test('a form whose process ended in the middle is not carried out again', async () => {
  handled = []
  const failing = appWith({ handle: () => Promise.reject(new Error('the process ended')) })
  const fields = fresh()
  await post(fields, { 'sec-fetch-site': 'same-origin' }, failing).catch(() => undefined)

  const again = await post(fields)

  expect(again.status).toBe(409)
  expect(again.text).toContain('This form was sent already')
  expect(handled).toEqual([])
})

test('a form that changed nothing can be sent again', async () => {
  handled = []
  const fields = fresh()
  const refusing = appWith({
    handle: async () => ({ page: { title: 'Not saved', status: 409, main: html`<h1>Not saved</h1>` } }),
  })

  const refused = await post(fields, { 'sec-fetch-site': 'same-origin' }, refusing)
  const again = await post(fields)

  expect([refused.status, again.status]).toEqual([409, 303])
})

test('a role that may not do it, an unknown field, a wrong value and a form without its ID change nothing', async () => {
  handled = []

  const reader = await supertest(app)
    .post('/ops/do')
    .set('cookie', cookies.reader)
    .set('sec-fetch-site', 'same-origin')
    .type('form')
    .send(fresh())
  const more = await post({ ...fresh(), role: 'operator' })
  const wrong = await post({ ...fresh(), amount: '<b>' })
  const bare = await post({ amount: '7' })

  expect([reader.status, more.status, wrong.status, bare.status]).toEqual([403, 400, 400, 400])
  expect(more.text).toContain('role: unknown field')
  expect(wrong.text).toContain('amount: must be a number')
  expect(wrong.text).not.toContain('<b>')
  expect(handled).toEqual([])
})

test("a form's answer is said on the page that it leads to, escaped, to the person whose form it was and to no other", async () => {
  const fields = fresh()
  await post(fields)

  const own = await supertest(app).get(`/ops/form?done=${fields.form}`).set('cookie', cookies.operator)
  const other = await supertest(app).get(`/ops/form?done=${fields.form}`).set('cookie', cookies.reader)
  const madeUp = await supertest(app).get(`/ops/form?done=${randomUUID()}`).set('cookie', cookies.operator)
  const odd = await supertest(app).get('/ops/form?done=%27%3B--').set('cookie', cookies.operator)

  expect(own.text).toContain('Saved &lt;7&gt; <a href="/ops">Reopen</a>')
  expect(other.text).not.toContain('Saved')
  expect(madeUp.text).not.toContain('Saved')
  expect(odd.status).toBe(200)
})
