import { defineConfig, env, key } from 'oncehook'

const accessToken = env.required('MERCADOPAGO_ACCESS_TOKEN')

// Mercado Pago signs the ID in the address and nothing of the body. What counts is the payment as its API has it now, and so the
// rules look at its status.
export default defineConfig({
  sources: {
    mercadopago: {
      provider: 'mercadopago',
      secrets: env.list('MERCADOPAGO_WEBHOOK_SECRETS'),
      confirm: async (notification) => {
        const answer = await fetch(`https://api.mercadopago.com/v1/payments/${encodeURIComponent(notification.data.id)}`, {
          headers: { authorization: `Bearer ${accessToken}` },
        })
        // Nobody's payment is ignored; whatever else goes wrong is tried again.
        if (answer.status === 404) return
        if (!answer.ok) throw new Error(`Mercado Pago answered ${answer.status}`)
        return { ...notification, payment: await answer.json() }
      },
    },
    inboxili: { provider: 'inboxili', secrets: env.list('INBOXILI_WEBHOOK_SECRETS') },
  },
  followUps: [
    {
      name: 'receipt',
      source: 'mercadopago',
      type: 'payment.updated',
      email: ({ payment }) =>
        payment.status === 'approved' && {
          key: key('payment', payment.id, 'approved'),
          to: payment.payer.email,
          from_email: 'billing@example.com',
          subject: 'We received your payment',
          html_body: '<p>Thank you, we received your payment.</p>',
        },
    },
    {
      name: 'payment failed',
      source: 'mercadopago',
      type: 'payment.updated',
      email: ({ payment }) =>
        payment.status === 'rejected' && {
          key: key('payment', payment.id, 'rejected'),
          to: payment.payer.email,
          from_email: 'billing@example.com',
          subject: 'Your payment did not go through',
          html_body: '<p>Your payment did not go through. Please try another way to pay.</p>',
        },
    },
    {
      name: 'refund',
      source: 'mercadopago',
      type: 'payment.updated',
      email: ({ payment }) =>
        payment.status === 'refunded' && {
          key: key('payment', payment.id, 'refunded'),
          to: payment.payer.email,
          from_email: 'billing@example.com',
          subject: 'Your refund is on its way',
          html_body: '<p>We have refunded your payment.</p>',
        },
    },
  ],
})
