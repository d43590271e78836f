"""Image classifiers of the zoo."""

from __future__ import annotations

from research.models import mobile_networks
from research.models.zoo_model import ZooModel, image_model, vision

_ONNX = ("onnx",)

IMAGE_MODELS: dict[str, ZooModel] = {
    name: image_model(build, size, formats=_ONNX)
    for name, size, build in (
        ("mobilenetv3-large", 224, mobile_networks.mobilenet_v3_large),
        ("shufflenetv2", 224, mobile_networks.shufflenet_v2),
        ("squeezenet", 224, mobile_networks.squeezenet),
        ("densenet-small", 224, mobile_networks.densenet_small),
        ("mobilenetv1", 224, vision("MobileNetV1ForImageClassification", "MobileNetV1Config")),
        (
            "regnety-400m",
            224,
            vision(
                "RegNetForImageClassification",
                "RegNetConfig",
                hidden_sizes=[48, 104, 208, 440],
                depths=[1, 3, 6, 6],
                groups_width=8,
            ),
        ),
        (
            "mobilevit-xs",
            256,
            vision(
                "MobileViTForImageClassification",
                "MobileViTConfig",
                hidden_sizes=[96, 120, 144],
                neck_hidden_sizes=[16, 32, 48, 64, 80, 96, 384],
            ),
        ),
        ("mobilevitv2", 256, vision("MobileViTV2ForImageClassification", "MobileViTV2Config")),
        ("levit-128s", 224, vision("LevitForImageClassification", "LevitConfig", depths=[2, 3, 4])),
        ("poolformer-s12", 224, vision("PoolFormerForImageClassification", "PoolFormerConfig")),
        ("pvtv2-b0", 224, vision("PvtV2ForImageClassification", "PvtV2Config")),
        (
            "convnextv2-atto",
            224,
            vision(
                "ConvNextV2ForImageClassification",
                "ConvNextV2Config",
                hidden_sizes=[40, 80, 160, 320],
                depths=[2, 2, 6, 2],
            ),
        ),
        ("swiftformer-xs", 224, vision("SwiftFormerForImageClassification", "SwiftFormerConfig")),
        (
            "deit-small",
            224,
            vision(
                "DeiTForImageClassification",
                "DeiTConfig",
                hidden_size=384,
                num_attention_heads=6,
                intermediate_size=1536,
                attn_implementation="eager",
            ),
        ),
        (
            "focalnet-tiny",
            224,
            vision("FocalNetForImageClassification", "FocalNetConfig"),
        ),
        ("cvt-13", 224, vision("CvtForImageClassification", "CvtConfig")),
    )
}
