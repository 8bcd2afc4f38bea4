import type { Request } from 'express'

/** The fields of a form that carries files, each file as its bytes; empty where it can't be read. */
export async function multipartFields(req: Request): Promise<Record<string, unknown>> {
  const type = req.get('content-type') ?? ''
  if (!Buffer.isBuffer(req.body) || !/^multipart\/form-data\b/i.test(type)) return {}
  // The body is as large as its parser let it be.
  const form = await new Response(new Uint8Array(req.body), { headers: { 'content-type': type } })
    .formData()
    .catch(() => undefined)
  const fields: Record<string, unknown> = {}
  for (const [name, value] of form ?? [])
    fields[name] = typeof value === 'string' ? value : Buffer.from(await value.arrayBuffer())
  return fields
}
