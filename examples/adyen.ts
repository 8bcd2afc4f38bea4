import { defineConfig, env, key } from 'oncehook'

// Adyen posts AUTHORISATION, CAPTURE and REFUND also when they failed: look at `success`. What is signed of an item are its
// references, amount, code and success. The shopper's address is not among them, so in earnest look it up by the
// merchantReference.
export default defineConfig({
  sources: {
    adyen: { provider: 'adyen', secrets: env.list('ADYEN_WEBHOOK_SECRETS') },
    inboxili: { provider: 'inboxili', secrets: env.list('INBOXILI_WEBHOOK_SECRETS') },
  },
  followUps: [
    {
      name: 'receipt',
      source: 'adyen',
      type: 'AUTHORISATION',
      email: (item) =>
        item.success === 'true' && {
          key: key('payment', item.pspReference, 'authorised'),
          to: item.additionalData?.shopperEmail,
          from_email: 'billing@example.com',
          subject: 'We received your payment',
          html_body: '<p>Thank you, we received your payment.</p>',
        },
    },
    {
      name: 'payment failed',
      source: 'adyen',
      type: 'CAPTURE_FAILED',
      email: (item) => ({
        key: key('payment', item.originalReference ?? item.pspReference, 'capture failed'),
        to: item.additionalData?.shopperEmail,
        from_email: 'billing@example.com',
        subject: 'Your payment did not go through',
        html_body: '<p>Your payment did not go through. Please try another way to pay.</p>',
      }),
    },
    {
      name: 'refund',
      source: 'adyen',
      type: 'REFUND',
      // Its pspReference is that of the refund; originalReference names the payment.
      email: (item) =>
        item.success === 'true' && {
          key: key('refund', item.pspReference, 'done'),
          to: item.additionalData?.shopperEmail,
          from_email: 'billing@example.com',
          subject: 'Your refund is on its way',
          html_body: '<p>We have refunded your payment.</p>',
        },
    },
    {
      name: 'payout',
      source: 'adyen',
      type: 'PAYOUT_THIRDPARTY',
      email: (item) =>
        item.success === 'true' && {
          key: key('payout', item.pspReference, 'done'),
          to: 'accounting@example.com',
          from_email: 'billing@example.com',
          subject: `Adyen has paid out ${item.pspReference}`,
          html_body: '<p>The money is on its way to our account.</p>',
        },
    },
  ],
})
